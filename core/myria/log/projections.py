"""What is folded from events in the transaction that appends them, so that a write is read at once.

A projection says which reserved types of events it folds (they begin with `myria.`, and no caller may append them). It
is called once per commit for all events of its types, whoever appended them, imports included. So its state is a
function of the log alone, and `myria verify` can compare the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.event import NewEvent


class Incoming(NamedTuple):
    """An event on its way into the log: what it is, and the id and scope that it gets."""

    event: NewEvent
    event_id: str
    scope_id: int


class Stored(NamedTuple):
    """An event that this commit has put into the log, and its number. What was there before is not among them."""

    event: NewEvent
    event_id: str
    scope_id: int
    event_seq: int


def payload_of(event: NewEvent) -> Mapping[str, Any]:
    """Return what an event says; nothing for what only PostgreSQL can read."""
    try:
        payload: dict[str, Any] = orjson.loads(event.payload_json)
    except orjson.JSONDecodeError:
        return {}
    return payload


class Projection(ABC):
    """State that is folded from events of some types, in the append transaction."""

    types: frozenset[str]
    """The types of events that it folds."""

    async def prepare(  # noqa: B027 - of most nothing must stand
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock and check what must stand, before the events of a commit get their numbers.

        It may be called again for the same events: an attempt whose outcome is unknown is made again, and one that
        is refused is divided.

        Args:
            events: those of its types, in input order.

        Raises:
            ConflictError: the state forbids one of them; its caller alone is refused.
        """

    @abstractmethod
    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Fold the events of its types that the commit stored: never called with none.

        Use one statement for all: each is a round trip that every caller of the commit waits for.
        """


class FoldingStatement(Projection):
    """What one statement folds from the events of one type, whatever stood before.

    Args:
        statement: the name of its SQL, which takes the tenant and the numbers of the events.
    """

    def __init__(self, event_type: str, statement: str) -> None:
        self.types = frozenset({event_type})
        self._statement = statement

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Run the statement."""
        await connection.execute(sql(self._statement), tenant, [event.event_seq for event in events])
