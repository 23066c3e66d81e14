"""Projections: tables folded from events in the transaction that appends them, so that a read sees them at once.

A projection names the reserved event types that it folds (they begin with `myria.`; callers may not append them). It is
called once per commit for all events of these types, whoever appended them, imports included. So its state depends on
the log alone, and `myria verify` can compare the two.
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
    """An event that is being appended, with its id and scope."""

    event: NewEvent
    event_id: str
    scope_id: int


class Stored(NamedTuple):
    """An event that this commit has stored, with its number; never one that was stored before."""

    event: NewEvent
    event_id: str
    scope_id: int
    event_seq: int


def payload_of(event: NewEvent) -> Mapping[str, Any]:
    """Return the payload of an event; empty if only PostgreSQL can parse its JSON."""
    try:
        payload: dict[str, Any] = orjson.loads(event.payload_json)
    except orjson.JSONDecodeError:
        return {}
    return payload


class Projection(ABC):
    """State that is folded from events of some types, in the append transaction."""

    types: frozenset[str]
    """The types of events that it folds."""

    folds_imports: bool = True
    """Whether it also folds what an import restores: what happened elsewhere, and perhaps long ago."""

    async def prepare(  # noqa: B027 - of most nothing must stand
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Take locks and check preconditions, before the events of a commit get their numbers.

        It may be called again for the same events: an attempt whose outcome is unknown is repeated, and a refused one
        is split.

        Args:
            events: the events of this projection's types, in input order.

        Raises:
            ConflictError: the state forbids an event; only its caller is refused.
        """

    @abstractmethod
    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Fold the events of this projection's types that the commit stored: at least one.

        Use one statement for all of them: each is a round trip for which every caller of the commit waits.
        """


class FoldingStatement(Projection):
    """Folds the events of one type by one SQL statement, without any precondition.

    Args:
        statement: the name of its SQL, which takes the tenant and the numbers of the events.
    """

    def __init__(self, event_type: str, statement: str) -> None:
        self.types = frozenset({event_type})
        self._statement = statement

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Run the statement."""
        await connection.execute(sql(self._statement), tenant, [event.event_seq for event in events])
