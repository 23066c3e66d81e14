"""Reading the files that memory-tools keep as turns of sessions, with their facts.

A session is a folder `<project>/memory/<session>`. Its messages are in `log.jsonl`, `context.jsonl`, `events/` and
`runtime/context/current.jsonl`, facts in `memory_facts.jsonl`, `memory_tiers/` and `indexes/active_facts.json`, both in
`legacy*.json`. Several files repeat the same records: each counts once. A turn is stored under its own turn_id and at
its time, so a second import adds nothing. Abstracts, insights and counters are left out: they are computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

from myria import errors
from myria.log.fields import check_text, parse_timestamp
from myria.log.jsontext import decode
from myria.log.limits import MAX_ID
from myria.log.scopes import canonical_participants
from myria.log.transfer import read_lines
from myria.notes.turns.facts import VALUE_BYTES, Fact, Tier, identity_of
from myria.notes.turns.model import Session
from myria.notes.turns.storing import FinishedTurn, TurnStore
from myria_cli.importers.importing import BOM, Importing
from myria_server.api.core import inputs
from myria_server.api.turns.schemas import AfterTurnInput

SESSIONS_AT_ONCE = 8
"""Sessions that are held in memory and stored concurrently."""

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line, of a file that is no JSON lines, and of a file's content in a dump."""

_DEFAULT_PROJECT: Final = "default"
_PLACE = re.compile(
    r"^(?:(?P<project>.*)/)?memory/(?P<session>.+?)/(?P<file>log\.jsonl|context\.jsonl|memory_facts\.jsonl"
    r"|legacy[^/]*\.jsonl?|events/(?:raw|archive)/.+\.(?:jsonl|zst)|runtime/context/current\.jsonl"
    r"|memory_tiers/L[012]/.+\.jsonl|indexes/active_facts\.json)$"
)
_ORDER = (
    "memory_facts.jsonl",
    "log.jsonl",
    "legacy",
    "context.jsonl",
    "events/",
    "runtime/",
    "memory_tiers/",
    "indexes/",
)
"""Beginnings of file names in the order of reading: first the files that were written as things happened."""

_ENDS: Mapping[str, str] = {"input_item": "in", "output_item": "out"}
_ITEM_ID = re.compile(r"^(?P<turn>.+)-(?P<end>in|out)-(?P<place>\d{1,6})$", re.DOTALL)
_FACT_NAMES = ("id", "type", "fact_id", "key", "value", "ts")
_GONE = frozenset({"deleted", "contradicted"})
_TIERS: Mapping[str, Tier] = {"L0": "L0", "L1": "L1"}
_DEFAULT_CONFIDENCE = 0.78
_UNPACK = "the shard is compressed and no log.jsonl holds what it does: `zstd -d` it where it lies, and import again"


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFile:
    """A file of a session: its name within the session's folder, and what opens it."""

    project: str
    session_id: str
    name: str
    open: Callable[[], IO[bytes]]


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A turn as the files of its session give it.

    `at` is in microseconds since 1970 UTC. `given` (input) and `came_out` (output) map an item's position to it.
    """

    turn_id: str
    at: int
    user_id: str | None = None
    given: dict[int, Any] = field(default_factory=dict)
    came_out: dict[int, Any] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class _FactRecord:
    fact: Fact
    at: int
    turn_id: str
    user_id: str | None
    is_gone: bool
    is_superseded: bool


def files_of(file: str, source: IO[bytes], project: str | None) -> Iterable[SessionFile]:
    """Return the session files of a folder or of a dump; see `files_below` and `files_of_dump`."""
    return files_below(Path(file), project) if Path(file).is_dir() else files_of_dump(source, project)


def files_below(root: Path, project: str | None) -> list[SessionFile]:
    """Return the files of sessions below a folder, session by session.

    Args:
        root: the folder of all projects, of one, its `memory`, or one session.
        project: the project of all files; None for each folder's own, or `default` if the path names none.
    """
    above = root.resolve().parts[1:]
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        inside = path.relative_to(root).as_posix()
        for count in range(3):  # `root` may lie below `memory`: try its path with 0, 1, then 2 folders above
            place = _PLACE.match("/".join([*above[len(above) - count :], inside]))
            if place is not None:
                own_project = place["project"] or (root.resolve().name if count == 0 else None)
                found.append(_file(place, project or own_project, partial(_open, path)))
                break
    return sorted(found, key=lambda file: (file.project, file.session_id, _rank(file.name), file.name))


def files_of_dump(source: IO[bytes], project: str | None) -> Iterator[SessionFile]:
    """Yield the session files of a dump: JSON lines of `project`, `path` and `content`, in the dump's order.

    Lines with other paths are left out.

    Raises:
        InvalidArgument, MalformedJson: a line is something else.
    """
    for text in read_lines(source.readline, LONGEST_LINE):
        if not text.strip():
            continue
        line = decode(text.removeprefix(BOM))
        if not isinstance(line, dict) or not all(isinstance(line.get(name), str) for name in ("path", "content")):
            raise errors.InvalidArgument(
                "a dump has JSON lines with project, path and content; name a folder otherwise", field="file"
            )
        place = _PLACE.match(line["path"].lstrip("/"))
        if place is not None:
            own_project = line.get("project")
            opening = partial(BytesIO, line["content"].encode())
            yield _file(place, project or (own_project if isinstance(own_project, str) else None), opening)


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _file(place: re.Match[str], project: str | None, opening: Callable[[], IO[bytes]]) -> SessionFile:
    name = (project or _DEFAULT_PROJECT).rstrip("/").rsplit("/", 1)[-1]
    return SessionFile(project=name, session_id=place["session"], name=place["file"], open=opening)


def _rank(name: str) -> int:
    """Return a file's place in the order of reading, by the beginning of its name."""
    return next((rank for rank, prefix in enumerate(_ORDER) if name.startswith(prefix)), len(_ORDER))


async def import_sessions(
    store: TurnStore, tenant: str, files: Iterable[SessionFile], own: tuple[str, ...], *, importing: Importing
) -> None:
    """Store the turns of sessions, and count them; safe to rerun: turns already stored are skipped.

    Args:
        files: the session files, those of one session next to each other.
        own: the participants (canonical) who own the sessions. A turn of a user also belongs to that user.
    """
    count = importing.count

    def sessions() -> Iterator[tuple[int, tuple[SessionFile, list[_Turn]]]]:
        grouped = groupby(files, key=lambda file: (file.project, file.session_id))
        for number, (_, group) in enumerate(grouped, 1):
            session = list(group)
            turns = _turns_of(session, importing)
            count.lines += len(turns)
            yield number, (session[0], turns)

    async def keep(session: tuple[SessionFile, list[_Turn]]) -> None:
        """Store the turns of one session, in their order."""
        place, turns = session
        for number, turn in enumerate(turns, 1):
            try:
                finished = _finished(place.project, place.session_id, turn, own)
                stored = await store.store(tenant, finished, now=turn.at)
            except (errors.InputError, errors.ConflictError) as error:
                importing.refuse(number, error, f"{place.project}/{place.session_id}, turn {turn.turn_id[:80]}")
                continue
            count.imported += stored.is_new
            count.redacted += bool(stored.redacted)
            count.already_there += not stored.is_new

    async for _ in importing.keep(sessions(), keep, at_once=SESSIONS_AT_ONCE):
        pass


def _finished(project: str, session_id: str, turn: _Turn, own: tuple[str, ...]) -> FinishedTurn:
    """Return a turn in the form in which it is stored.

    Raises:
        InvalidArgument, InvalidText: the after_turn tool would have refused it.
    """
    request = inputs.read(
        AfterTurnInput,
        {
            "project": project,
            "session_id": session_id,
            "turn_id": turn.turn_id,
            "user_id": turn.user_id,
            "input_items": [turn.given[place] for place in sorted(turn.given)],
            "output_items": [turn.came_out[place] for place in sorted(turn.came_out)],
        },
    )
    participants = own if request.user_id is None else canonical_participants([*own, request.user_id], field="user_id")
    return FinishedTurn(
        session=Session(own=own, participants=participants, project=request.project, session_id=request.session_id),
        turn_id=request.turn_id or turn.turn_id,
        given=request.input_items,
        came_out=request.output_items,
        user_id=request.user_id,
        is_current=True,
        facts=tuple(turn.facts),
    )


def _turns_of(files: Sequence[SessionFile], importing: Importing) -> list[_Turn]:
    """Merge the files of one session into its turns, ordered by time.

    Lines that cannot be read are refused on `importing`. A fact without a turn gets a turn of its own.
    """
    count = importing.count
    turns: dict[str, _Turn] = {}
    facts: dict[tuple[str, ...], _FactRecord] = {}
    has_log = any(file.name == "log.jsonl" for file in files)
    for file in sorted(files, key=lambda file: (_rank(file.name), file.name)):
        where = f"{file.project}/{file.session_id}/{file.name}"
        if file.name.endswith(".zst"):
            if not has_log:
                count.lines += 1
                importing.refuse(1, errors.InvalidArgument(_UNPACK, field="file"), where)
            continue
        for line, text in _texts(file):
            count.bytes_read += len(text)
            try:
                for record in _objects(_read(text)):
                    if record.get("type") in _ENDS:
                        _add_item(turns, record)
                    elif record.get("fact_id") or record.get("key"):
                        facts.setdefault(tuple(str(record.get(name)) for name in _FACT_NAMES), _fact_record(record))
            except errors.MyriaError as error:
                count.lines += 1
                importing.refuse(line, error, where)
    for entry in _undeleted(facts.values()):
        turn_id = entry.turn_id or f"facts-{entry.at}"
        turns.setdefault(turn_id, _Turn(turn_id=turn_id, at=entry.at, user_id=entry.user_id)).facts.append(entry.fact)
    return sorted(turns.values(), key=lambda turn: turn.at)


def _undeleted(records: Iterable[_FactRecord]) -> list[_FactRecord]:
    """Return the records of each fact by time, without superseded ones and without those before a deletion."""
    versions_of: dict[str, list[_FactRecord]] = {}
    for record in sorted(records, key=lambda record: record.at):
        versions = versions_of.setdefault(identity_of(record.fact.fact_id, record.fact.key), [])
        if record.is_gone:
            versions.clear()
        elif not record.is_superseded:
            versions.append(record)
    return [record for versions in versions_of.values() for record in versions]


def _texts(file: SessionFile) -> Iterator[tuple[int, bytes]]:
    """Yield the JSON texts of a file with their line numbers: the whole file, or each line of JSON lines."""
    with file.open() as source:
        if file.name.endswith(".json"):
            text = source.read(LONGEST_LINE + 1)
            if len(text.strip().splitlines()) < 2 or not _is_lines(text):
                yield 1, text
                return
            source.seek(0)
        for number, line in enumerate(read_lines(source.readline, LONGEST_LINE), 1):
            if line.strip():
                yield number, line


def _is_lines(text: bytes) -> bool:
    """Tell whether a text is JSON lines: then its first line is JSON by itself."""
    try:
        decode(text.strip().splitlines()[0])
    except errors.MyriaError:
        return False
    return True


def _read(text: bytes) -> Any:
    if len(text) > LONGEST_LINE:
        raise errors.BodyTooLarge(f"it is longer than {LONGEST_LINE} bytes", limit=LONGEST_LINE)
    return decode(text.removeprefix(BOM))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the records in a value, however deep in lists and objects; a record is an object with `ts`."""
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)
    elif isinstance(value, dict):
        if "ts" in value:
            yield value
            return
        for part in value.values():
            if isinstance(part, list | dict):
                yield from _objects(list(part.values()) if isinstance(part, dict) else part)


def _add_item(turns: dict[str, _Turn], record: Mapping[str, Any]) -> None:
    """Add a record's item to its turn, which is made if missing; an item already at that position stays."""
    at = parse_timestamp(record["ts"], "ts")
    item_id = check_text(record.get("id"), "id", MAX_ID * 2)
    match = _ITEM_ID.match(item_id)
    direction = _ENDS[record["type"]]
    turn_id = record.get("turn_id") or (match["turn"] if match else item_id)
    turn = turns.setdefault(check_text(turn_id, "turn_id", MAX_ID), _Turn(turn_id=turn_id, at=at))
    turn.user_id = turn.user_id or record.get("user_id") or None
    items = turn.given if direction == "in" else turn.came_out
    position = int(match["place"]) if match and match["end"] == direction else len(items)
    items.setdefault(position, record.get("item"))


def _fact_record(record: Mapping[str, Any]) -> _FactRecord:
    """Parse a record of a fact; unknown tiers and confidences become defaults."""
    fact_id, key = (_label(record, name) for name in ("fact_id", "key"))
    confidence = record.get("confidence")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        confidence = _DEFAULT_CONFIDENCE
    state = str(record.get("state") or "").strip().lower()
    kind = str(record.get("type") or "").strip().lower()
    value = check_text(record.get("value"), "value", VALUE_BYTES * 64).strip()
    return _FactRecord(
        fact=Fact(
            fact_id=fact_id or key,
            key=key or fact_id,
            value=value,
            tier=_TIERS.get(str(record.get("tier")), "L2"),
            confidence=min(1.0, max(0.0, float(confidence))),
        ),
        at=parse_timestamp(record["ts"], "ts"),
        turn_id=_label(record, "source_turn_id"),
        user_id=_label(record, "source_user_id") or None,
        is_gone=kind == "fact_delete" or state in _GONE,
        is_superseded=kind == "fact_supersede" or state == "superseded",
    )


def _label(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return "" if value in (None, "") else check_text(value, name, MAX_ID).strip()
