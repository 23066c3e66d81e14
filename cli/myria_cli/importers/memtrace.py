"""Reading what Memtrace keeps (the rows of its `events` in Arc as JSON lines, or answers of its API) as memories.

A row is stored as `POST /memories` would have stored it at its time, under a key made from its content, so a second
import adds nothing. Equal rows that Memtrace's buffer let through twice stay two. Agents and sessions, which Memtrace
holds in SQLite, are not in the export: memories name them, registered or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from myria import errors
from myria.log.canonical import digest
from myria.log.fields import parse_timestamp
from myria.log.jsontext import decode
from myria.notes.memories.commands import Memories
from myria.notes.memories.model import MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria_cli.importers.importing import Importing
from myria_server.api.core import inputs
from myria_server.api.memtrace import schemas as rest

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Most bytes of a line: a whole page of an API's answer is one line."""

_LISTS = ("memories", "results", "data")
_IMPORTED_FIELDS = (
    "agent_id",
    "content",
    "session_id",
    "memory_type",
    "event_type",
    "metadata",
    "tags",
    "dedup_key",
    "importance",
    "parent_id",
)
_NANOSECONDS = 9


ExportedMemory = tuple[MemoryDraft, int, str]
"""A row in the form to store: its draft, its time in microseconds since 1970, and the key that finds it in a repeat."""


async def import_memories(
    memories: Memories, tenant: str, lines: Iterable[bytes], keeping: Keeping, importing: Importing
) -> None:
    """Store the rows of an export as memories; safe to rerun: rows already stored are skipped.

    Args:
        memories: with `window_s=0`, so that what Memtrace kept twice stays two memories.
        keeping: the participants to whom the memories belong.
    """
    count = importing.count
    repeats: dict[bytes, int] = {}

    def rows() -> Iterator[tuple[int, ExportedMemory | errors.MyriaError]]:
        for number, document in importing.documents(lines, longest=LONGEST_LINE):
            for row in _rows(document):
                try:
                    yield number, memory_of(row, repeats)
                except errors.MyriaError as error:
                    yield number, error

    async def keep(memory: ExportedMemory) -> None:
        draft, at, key = memory
        kept = await memories.keep(tenant, keeping, draft, key=key, now=at)
        count.imported += kept.is_new
        count.already_there += not kept.is_new

    async for _ in importing.keep(rows(), keep):
        pass


def memory_of(row: Any, repeats: dict[bytes, int]) -> ExportedMemory:
    """Convert a row into a memory.

    Args:
        repeats: how often each row was read so far, by the digest of its content; counted up here, it makes the keys of
            equal rows different.

    Raises:
        InvalidArgument, InvalidText, InvalidTimestamp: it is no memory.
    """
    if not isinstance(row, dict):
        raise errors.InvalidArgument("a memory must be a JSON object", field="line")
    fields = {name: row[name] for name in _IMPORTED_FIELDS if row.get(name) not in (None, "")}
    if "metadata" not in fields and row.get("metadata_json") not in (None, ""):
        fields["metadata"] = _metadata(row["metadata_json"])
    if "tags" not in fields and row.get("tags_csv"):
        fields["tags"] = row["tags_csv"]
    request = inputs.read(rest.MemoryInput, fields)
    if "time" not in row:
        raise errors.InvalidArgument("time is required: every row of Memtrace has it", field="time")
    at = parse_timestamp(_shortened(row["time"]), "time")
    draft = request.draft()
    content_digest = digest([str(at), orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()])
    number = repeats[content_digest] = repeats.get(content_digest, 0) + 1
    return draft, at, f"memtrace:{content_digest.hex()}:{number}"


def _rows(document: Any) -> Iterator[Any]:
    """Yield the rows in a line's document: the document itself, or those of an answer of Memtrace's API or of Arc."""
    if isinstance(document, list):
        yield from document
        return
    name = next((name for name in _LISTS if isinstance(document, dict) and isinstance(document.get(name), list)), None)
    if name is None:
        yield document
        return
    columns = document.get("columns")
    for row in document[name]:
        if isinstance(columns, list) and isinstance(row, list):
            yield dict(zip(columns, row, strict=False))
        else:
            yield row


def _metadata(text: Any) -> Mapping[str, Any]:
    value = decode(text.encode()) if isinstance(text, str) else text
    if not isinstance(value, dict):
        raise errors.InvalidArgument("metadata_json must be a JSON object", field="metadata_json")
    return value


def _shortened(time: Any) -> Any:
    """Cut a time's fraction of up to nine digits to microseconds; return anything else as it is."""
    if not isinstance(time, str) or "." not in time:
        return time
    whole, _, rest_of = time.partition(".")
    digits = len(rest_of) - len(rest_of.lstrip("0123456789"))
    return f"{whole}.{rest_of[: min(digits, 6)]}{rest_of[digits:]}" if 6 < digits <= _NANOSECONDS else time
