"""Moving a memory: every event out as JSON lines, and JSON lines in, exactly once.

A line is the arguments of `append_event` with the `event_id`. Derived state does not travel: a deterministic rebuild of
an import gives the same node_ids, because order and identities are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from myria import errors
from myria.db.clock import rfc3339_of
from myria.db.database import Database, connect, translated
from myria.db.queries import sql
from myria.log.acknowledgement import AppendResult
from myria.log.canonical import digest
from myria.log.event import NewEvent, parse_event
from myria.log.event_log import EventLog
from myria.log.high_water import high_water_mark
from myria.log.jsontext import decode
from myria.log.limits import Limits
from myria.log.withdrawal.model import WITHDRAWAL_TYPE

T = TypeVar("T")

IMPORT_BATCH = 500
"""Events per commit of an import."""

EXPORT_PAGE = 2_000
"""Events per page of an export; each page is a short transaction of its own."""

RETRY_FOR_S = 60.0
"""How long an import waits for a database that is away before it gives up (and can be run again)."""

_LINE_SLACK = 64 * 1024
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedLine:
    """A line that was not imported: its number (from 1), the error's code, and what to do."""

    line: int
    code: str
    message: str


@dataclass(slots=True, kw_only=True)
class ImportCount:
    """What became of the lines read so far.

    `edited` are those that took the place of what they said at an earlier import; `redacted`, those of which something
    was taken out; `bytes_read` serves a progress bar.
    """

    lines: int = 0
    imported: int = 0
    edited: int = 0
    already_there: int = 0
    refused: int = 0
    blank: int = 0
    redacted: int = 0
    bytes_read: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the counts for programs: without `edited` and `bytes_read`."""
        return {
            "lines": self.lines,
            "imported": self.imported,
            "already_there": self.already_there,
            "refused": self.refused,
            "blank": self.blank,
            "redacted": self.redacted,
        }


Revise = Callable[[Sequence[tuple[NewEvent, AppendResult]]], Awaitable[list[bool | None]]]
"""Decides about events whose source keys were stored with other content. Returns for each: True if the stored event was
edited, False if it stays as it is, None to refuse the line."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line's number and event; `is_made` if the event_id was computed from the content."""

    number: int
    event: NewEvent
    is_made: bool


def longest_line(limits: Limits) -> int:
    """Return the longest line that can hold an acceptable event, in bytes: every character may be escaped."""
    return 6 * limits.payload_bytes + _LINE_SLACK


async def import_lines(
    log: EventLog,
    tenant: str,
    lines: Iterable[bytes],
    limits: Limits,
    *,
    ignore: Collection[str] = (),
    revise: Revise | None = None,
    dry_run: bool = False,
    on_refused: Callable[[RefusedLine], None],
    on_progress: Callable[[ImportCount], None] = lambda _: None,
) -> ImportCount:
    """Append the events of JSON lines in their order. Safe to rerun; it adds no event twice.

    A line with an event_id keeps it. A line with a source_event_key is recognised by that. Any other line is recognised
    by its whole content (and by how many equal lines came before it): its event_id is computed from that, under a key
    of the tenant that nobody can read. A line with an event_id is stored unchanged, since a Myria has stored it before;
    all others are redacted.

    Args:
        lines: one JSON object each, as `read_lines` yields them.
        ignore: unknown fields that are dropped; any other unknown field refuses its line.
        revise: see `Revise`; None refuses each line whose source_event_key was stored with other content.
        dry_run: read and check every line, but store none. Valid lines count as imported, even if stored before.
        on_refused: called for each line that was not imported.
        on_progress: called with the counts after each batch, and at the end.

    Raises:
        UnavailableError: the database was unreachable for a minute; events imported so far stay.
    """
    count = ImportCount()
    equal_lines: Counter[bytes] = Counter()
    batch: list[_Line] = []

    def refuse(line: int, error: errors.MyriaError) -> None:
        count.refused += 1
        on_refused(RefusedLine(line=line, code=error.code, message=error.message))

    for text in lines:
        count.lines += 1
        count.bytes_read += len(text)
        if count.lines == 1:
            text = text.removeprefix(_BOM)
        if not text.strip():
            count.blank += 1
            continue
        try:
            event = _parse(text, limits, ignore)
            if event.event_id is None:
                event, redacted_counts = await _patiently(partial(log.clean_event, tenant, event))
                count.redacted += bool(redacted_counts)
        except errors.UnavailableError:
            raise  # not the line's fault: the database was away for too long
        except errors.MyriaError as error:
            refuse(count.lines, error)
            continue
        if dry_run:
            count.imported += 1
            continue
        is_made = event.event_id is None and event.source_event_key is None
        # A withdrawal that was appended with its event shares its commit here, too: what it hides is seen at no time.
        may_end = event.type != WITHDRAWAL_TYPE or len(batch) >= 2 * IMPORT_BATCH
        if len(batch) >= IMPORT_BATCH and may_end:
            await _store(log, tenant, batch, count, refuse, revise=revise)
            batch = []
            on_progress(count)
        batch.append(_Line(count.lines, _with_content_id(event, equal_lines) if is_made else event, is_made))
    await _store(log, tenant, batch, count, refuse, revise=revise)
    on_progress(count)
    return count


def read_lines(read: Callable[[int], bytes], longest: int) -> Iterable[bytes]:
    """Yield lines, with their line ends, from a binary `readline`; a line beyond `longest` bytes is cut.

    The cut line keeps `longest` + 1 bytes, so that memory is bounded and `import_lines` still refuses it as too long.
    """
    while text := read(longest + 1):
        if len(text) > longest and not text.endswith(b"\n"):
            while (rest := read(longest)) and not rest.endswith(b"\n"):
                pass
        yield text


def _parse(text: bytes, limits: Limits, ignore: Collection[str]) -> NewEvent:
    if len(text) > longest_line(limits):
        raise errors.BodyTooLarge(
            f"the line is longer than {longest_line(limits)} bytes, more than any acceptable event",
            limit=longest_line(limits),
        )
    value = decode(text)
    if isinstance(value, dict):
        for name in ignore:
            value.pop(name, None)
    return parse_event(value, limits, importing=True)


def _with_content_id(event: NewEvent, equal_lines: Counter[bytes]) -> NewEvent:
    """Give an event a provisional event_id, computed from its content without a key.

    `_with_final_ids` replaces it by the stored id, which it derives under the tenant's key.

    Args:
        equal_lines: how many lines before had each content; this line is counted there.
    """
    content = digest(
        {
            "timestamp": event.timestamp,
            "channel": event.channel,
            "participants": list(event.participants),
            "payload": hashlib.sha256(event.payload_json).digest(),
            "context_id": event.context_id,
            "type": event.type,
            "topic_hints": [[hint.hint, repr(hint.confidence)] for hint in event.topic_hints],
            "internal": event.internal,
        }
    )[:16]
    repeat = equal_lines[content]
    equal_lines[content] += 1
    tail = digest({"content": content, "repeat": repeat}).hex()[:20]
    milliseconds = max(0, min(event.timestamp // 1000, 2**48 - 1))
    return event._replace(event_id=f"evt_{milliseconds:012x}{tail}")


async def _store(
    log: EventLog,
    tenant: str,
    batch: Sequence[_Line],
    count: ImportCount,
    refuse: Callable[[int, errors.MyriaError], None],
    *,
    revise: Revise | None,
) -> None:
    """Append a batch as one commit; if it is refused, try each half, down to the single lines at fault."""
    batch = await _patiently(lambda: _with_final_ids(log.database, tenant, batch, refuse))
    if batch:
        await _store_identified(log, tenant, batch, count, refuse, revise=revise)


async def _with_final_ids(
    database: Database, tenant: str, batch: Sequence[_Line], refuse: Callable[[int, errors.MyriaError], None]
) -> list[_Line]:
    """Return the lines of a batch with their final event_ids; refuse lines of erased events.

    An id computed from content is replaced by its keyed form; an id that the line gives stays.
    """
    content_ids = [line.event.event_id for line in batch if line.is_made]
    if not content_ids:
        return list(batch)
    async with database.write(tenant) as connection:
        rows = await connection.fetch(sql("transfer.identities"), tenant, content_ids)
    row_by_id = {row["event_id"]: row for row in rows}
    kept, refused = [], []
    for line in batch:
        row = row_by_id[line.event.event_id] if line.is_made else None
        if row is None:
            kept.append(line)
        elif row["is_erased"]:
            refused.append(line)
        else:
            kept.append(replace(line, event=line.event._replace(event_id=row["keyed"])))
    for line in refused:
        refuse(
            line.number, errors.EventErased("an event with this content was erased; nothing was stored of this line")
        )
    return kept


async def _store_identified(
    log: EventLog,
    tenant: str,
    batch: Sequence[_Line],
    count: ImportCount,
    refuse: Callable[[int, errors.MyriaError], None],
    *,
    revise: Revise | None,
) -> None:
    """Append lines that have their final ids, and count the outcome of each; see `_store`."""
    try:
        results = await _patiently(lambda: log.import_events(tenant, [line.event for line in batch]))
    except (errors.InputError, errors.ConflictError) as error:
        if len(batch) == 1:
            refuse(batch[0].number, error)
            return
        middle = len(batch) // 2
        await _store_identified(log, tenant, batch[:middle], count, refuse, revise=revise)
        await _store_identified(log, tenant, batch[middle:], count, refuse, revise=revise)
        return
    differing = []
    for line, result in zip(batch, results, strict=True):
        if result.payload_differs:
            differing.append((line, result))
        elif result.deduplicated:
            count.already_there += 1
        else:
            count.imported += 1
    outcomes: list[bool | None] = [None] * len(differing)
    if revise is not None and differing:
        differing_events = [(line.event, result) for line, result in differing]
        outcomes = await _patiently(lambda: revise(differing_events))
    for (line, result), is_edited in zip(differing, outcomes, strict=True):
        if is_edited is None:
            refuse(line.number, _content_conflict(line.event, result))
        else:
            count.edited += is_edited
            count.already_there += not is_edited


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work`, and repeat it for up to `RETRY_FOR_S` while the database is unreachable; return its result."""
    give_up = time.monotonic() + RETRY_FOR_S
    delay = 0.1
    while True:
        try:
            return await work()
        except errors.UnavailableError:
            if time.monotonic() + delay > give_up:
                raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, 2.0)


def _content_conflict(event: NewEvent, result: AppendResult) -> errors.MyriaError:
    return errors.EventIdConflict(
        f"source_event_key {event.source_event_key!r} of channel {event.channel!r} exists already with other content; "
        "the first one stays",
        existing_event_id=result.event_id,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportPage:
    """Some lines of an export, and the number of events in them."""

    text: bytes
    events: int


async def analyze(dsn: str) -> None:
    """Refresh PostgreSQL's statistics of the log after a large import; without ownership, PostgreSQL only warns."""
    connection = await connect(dsn, pgbouncer=True)  # no named prepared statement: it runs only once
    try:
        with translated():
            await connection.execute(sql("transfer.analyze"))
    finally:
        await connection.close()


async def export_bound(database: Database, tenant: str) -> int:
    """Return an event_seq up to which all events of the tenant are committed; later events get higher numbers.

    Raises:
        LogBusy: the append lock was not free within a minute.
    """
    return (await high_water_mark(database, tenant)).cutoff


async def count_events(database: Database, tenant: str, bound: int, *, withdrawn: bool = False) -> int:
    """Return how many events an export up to `bound` holds; see `export_pages`."""
    async with database.read(tenant) as connection:
        total: int = await connection.fetchval(sql("transfer.count"), tenant, bound, withdrawn)
        return total


async def export_pages(
    database: Database, tenant: str, bound: int, *, withdrawn: bool = False
) -> AsyncIterator[ExportPage]:
    """Yield every event up to `bound` (from `export_bound`) as JSON lines, in event_seq order.

    Args:
        withdrawn: whether to include withdrawn events, and the withdrawals themselves; an import of this whole log
            gives the same memory.

    Each page is read in its own transaction, so a slow reader of the export does not hold one open.
    """
    after = 0
    while True:
        async with database.read(tenant) as connection:
            rows = await connection.fetch(sql("transfer.page"), tenant, after, bound, EXPORT_PAGE, withdrawn)
        if not rows:
            return
        after = rows[-1]["event_seq"]
        yield ExportPage(text=b"".join(_export_line(row) for row in rows), events=len(rows))


def _export_line(row: Any) -> bytes:
    head: dict[str, Any] = {
        "event_id": row["event_id"],
        "timestamp": rfc3339_of(row["occurred_at"], row["utc_offset"]),
        "channel": row["channel"],
        "participants": list(row["participants"]),
    }
    for name in ("source_event_key", "type", "context_id"):
        if row[name] is not None:
            head[name] = row[name]
    if row["internal"]:
        head["internal"] = True
    parts = [orjson.dumps(head)[:-1]]
    if row["topic_hints"] != "[]":
        parts += [b',"topic_hints":', row["topic_hints"].encode()]
    parts += [b',"payload":', _payload(row["payload"]).encode(), b"}\n"]
    return b"".join(parts)


def _payload(text: str) -> str:
    """Return JSON text that an import can read: PostgreSQL writes 1e300 with all its zeros, like a huge integer."""
    if "00000000000" not in text:
        return text
    return json.dumps(json.loads(text, parse_int=_number), ensure_ascii=False, separators=(",", ":"))


def _number(digits: str) -> int | float:
    # 2**64 stands for any number too long for 64 bits, without parsing it.
    value = int(digits) if len(digits) < 25 else 2**64
    return value if -(2**63) <= value < 2**64 else float(digits)
