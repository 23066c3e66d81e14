"""Reading what Memento exports (`memento-mcp export`, version 3: one fragment per line as JSON) as notes.

A fragment is stored as `remember` would have stored it at its time, under a key made from its id, so a second import
adds nothing. The time after which an unused note expires counts from the import, or old ones would expire at once.
Links and the fields of cases are not part of a note's text, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from myria import errors
from myria.db.clock import to_datetime
from myria.db.database import Database
from myria.log.canonical import digest
from myria.log.fields import check_text, parse_timestamp
from myria.log.limits import MAX_ID, MAX_TYPE
from myria.notes.commands import Notes
from myria.notes.details import DETAILS, Details
from myria.notes.drafting import Draft
from myria_cli.importers.importing import Importing
from myria_cli.importers.records import People, Statement
from myria_cli.importers.storing import keep_statements
from myria_server.api.memento.input_schemas import MAX_CIRCUMSTANCE

POOL: Final = "default"
"""The agent whose fragments all agents share."""

_MAX_CONTENT = 1_000_000


async def import_fragments(
    notes: Notes, database: Database, tenant: str, lines: Iterable[bytes], own: tuple[str, ...], *, importing: Importing
) -> None:
    """Store the fragments of an export as notes; safe to rerun: fragments already stored are skipped.

    Args:
        database: where the notes' lifetimes are stored.
        own: the participants (canonical) who own the pool. A fragment of an agent also belongs to that agent.
    """

    def fragments() -> Iterator[tuple[int, Statement | errors.MyriaError]]:
        for number, document in importing.documents(lines):
            try:
                yield number, fragment_of(document)
            except errors.MyriaError as error:
                yield number, error

    await keep_statements(notes, database, tenant, fragments(), People(own, {}), importing=importing)


def fragment_of(line: Any) -> Statement:
    """Convert a line of an export into a statement.

    Raises:
        InvalidArgument, InvalidText: it is no fragment, or one that is no longer valid.
    """
    if not isinstance(line, dict):
        raise errors.InvalidArgument("a line must be a JSON object; export without --json", field="line")
    if line.get("valid_to") is not None or line.get("superseded_by") is not None:
        raise errors.InvalidArgument("the fragment is no longer valid: another took its place", field="valid_to")
    content = check_text(line.get("content"), "content", _MAX_CONTENT)
    if "created_at" not in line:
        raise errors.InvalidArgument("created_at is required: the fragments of an export have it", field="created_at")
    agent = line.get("agent_id")
    agent = None if agent in (None, "", POOL) else check_text(agent, "agent_id", MAX_ID)
    fragment_id = _text(line, "id", MAX_ID) or digest([content, line["created_at"]]).hex()[:32]
    return Statement(
        key=f"memento:{fragment_id}",
        at=to_datetime(parse_timestamp(line["created_at"], "created_at")),
        people=() if agent is None else (agent,),
        agent=agent,
        draft=Draft(
            content=content,
            kind=_text(line, "type", MAX_TYPE),
            topic=_text(line, "topic", MAX_ID),
            keywords=_keywords(line),
            importance=_importance(line),
            source=_text(line, "source", MAX_ID) or "memento",
            anchor=line.get("is_anchor") is True,
            details=Details(**{name: _text(line, name, MAX_CIRCUMSTANCE) for name in DETAILS}),
        ),
    )


def _text(line: Mapping[str, Any], name: str, limit: int) -> str | None:
    value = line.get(name)
    return None if value in (None, "") else check_text(value, name, limit)


def _keywords(line: Mapping[str, Any]) -> tuple[str, ...] | None:
    value = line.get("keywords")
    if not value:
        return None
    if not isinstance(value, list):
        raise errors.InvalidArgument("keywords must be a list of texts", field="keywords")
    return tuple(check_text(item, f"keywords[{at}]", MAX_ID) for at, item in enumerate(value))


def _importance(line: Mapping[str, Any]) -> float | None:
    value = line.get("importance")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise errors.InvalidArgument("importance must be a number from 0 to 1", field="importance")
    return float(value)
