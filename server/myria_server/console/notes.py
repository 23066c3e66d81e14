"""The pages of notes: what agents keep on purpose, what is true now, what it replaced; forgetting, and undoing it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import Request

from myria.db.clock import to_rfc3339
from myria.errors import InvalidArgument, NoteNotFound, ParticipantsNotAllowed
from myria.log.withdrawal.commands import MaySee, Restorable
from myria.notes.histories import NoteVersion
from myria.notes.links import LinkedNote, Neighbourhood
from myria.notes.memories.reading import EVENT_ID_PREFIX
from myria.notes.model import NOTE_TYPE
from myria.notes.standing import NoteStanding, standing
from myria.notes.subjects import GENERAL
from myria_server.api.memento.input_schemas import KINDS
from myria_server.api.memento.notes import note_json
from myria_server.console.desk import Desk, Json, ToolRefused
from myria_server.console.done import done_of
from myria_server.console.events import acts_told
from myria_server.console.fields import id_of, whole_number_of
from myria_server.console.forms import Fields, Form, Page
from myria_server.console.names import NAMES
from myria_server.console.rendering import query
from myria_server.console.review import shown_held
from myria_server.console.routes import FormRoute, PageRoute, Routes
from myria_server.console.wording import Part, differences

_PAGE = 30
_BESIDE = 10
"""Other notes of a subject on the page of one."""

_TOKENS = 20_000
_VERSIONS = 20
"""Versions on a page."""

_COMPARED = 4_000
"""Characters of a version up to which a page says how it differs from the one before."""

_FORGOTTEN = 20
"""Notes and events that were forgotten lately, of which each has an undo."""

_FEEDBACK = 100
"""Newest ratings of answers that are looked at for those of one note."""

_LINKS: Mapping[str, tuple[str, str]] = {
    "related": ("Related to it", "Related to it"),
    "caused_by": ("Caused by", "Caused"),
    "resolved_by": ("Resolved by", "Resolves"),
    "part_of": ("Part of", "Has as its part"),
    "contradicts": ("Contradicts", "Contradicted by"),
}
"""What a link says of the note at which it begins, and of the note to which it leads."""

FIELDS: Fields = {
    **dict.fromkeys(NAMES, ("as", "Person or agent")),
    "text": ("q", "Search"),
    "type": ("kind", "Kind"),
    "topic": ("topic", "Subject"),
}
"""What a refusal of a search says of the form's fields (see `Fields`)."""

RESTORED: Fields = dict.fromkeys(("id", "note_not_found", "event_not_found"), ("note", "Its id"))
"""The same of the form that restores a note."""


def names_of(desk: Desk) -> Sequence[str]:
    """Return the names that links of a page of notes repeat: the one as whom it is read."""
    return desk.names if desk.agent is None else [desk.agent]


def _search(request: Request) -> Json:
    """Return what the form of the page asks for."""
    parameters = request.query_params
    return {
        "text": parameters.get("q", "").strip(),
        "type": parameters.get("kind", ""),
        "topic": parameters.get("topic", "").strip(),
        "includeSuperseded": parameters.get("superseded") == "on" or None,
    }


async def form(_desk: Desk, request: Request) -> Page:
    """Show the form with what the address holds, and no notes."""
    return "notes.html", {
        "search": _search(request),
        "kinds": KINDS,
        "stats": None,
        "forgotten": (),
        "done": "",
        "done_note": "",
    }


async def overview(desk: Desk, request: Request) -> Page:
    """Show the notes that fit a search, newest first where nothing is searched for, and how many there are."""
    parameters = request.query_params
    search = _search(request)
    answer = await desk.call(
        "recall",
        agentId=desk.agent,
        pageSize=_PAGE,
        tokenBudget=_TOKENS,
        cursor=parameters.get("cursor"),
        includeKeywords=True,
        minImportance=0.0,  # of all that is remembered only notes
        **search,
    )
    stats = await desk.call("memory_stats", agentId=desk.agent)
    return "notes.html", {
        "names": names_of(desk),
        "other_names": [name for name in desk.names if name not in names_of(desk)],
        "search": search,
        "kinds": KINDS,
        "note_type": NOTE_TYPE,
        "notes": answer["fragments"],
        "beside": _beside_each(answer["fragments"]),
        "next_cursor": answer.get("nextCursor"),
        "stats": stats["stats"],
        "topics": stats["topics"][:_PAGE],
        "forgotten": (forgotten := await _forgotten(desk)),
        "key_names": await desk.key_names(one.by for one in forgotten),
        "done": done_of(request),
        "done_note": parameters.get("note", ""),
    }


async def _forgotten(desk: Desk) -> Sequence[Restorable]:
    """Return what was forgotten lately of what the visitor may see and restore."""
    if not desk.may("restore"):
        return ()
    may_see_notes = desk.note_masks.sees
    may_see_events: MaySee = _nothing
    if desk.may("restore_events"):
        with suppress(ParticipantsNotAllowed):  # as this name the visitor reads notes alone
            may_see_events = desk.masks.sees
    return await desk.memory.withdrawals.forgotten(
        desk.tenant, may_see_notes=may_see_notes, may_see_events=may_see_events, most=_FORGOTTEN
    )


def _nothing(_participants: Sequence[str]) -> bool:
    """Tell that nothing of some participants may be seen."""
    return False


async def note(desk: Desk, request: Request) -> Page:
    """Show a note: what it says now, its versions, what it replaced, its links and its feedback.

    Whoever may bring a forgotten or a held one back is shown that it is gone, and an administrator by whom.
    """
    desk.principal.need_api("agent")
    tenant = desk.tenant
    may_see = desk.note_masks.sees
    note_id = await desk.memory.note_id(tenant, request.path_params["note_id"])
    acts = await acts_told(desk, "note", note_id)
    if acts["gone"]:
        return "gone.html", {"what": "note", "id": note_id, "names": names_of(desk), **acts}
    try:
        stands = await standing(desk.memory.database, tenant, note_id, may_see=may_see)
    except NoteNotFound:
        if (page := await _under_review(desk, note_id, may_see)) is None:
            raise
        return page
    # Links of a replaced note are left out, as everywhere.
    around = await desk.memory.links.around(tenant, note_id, may_see=may_see) if stands.is_live else None
    note = note_json(note_id, stands.versions[0].note, version=stands.versions[0].version)
    upto = whole_number_of(request.query_params.get("upto"))
    versions, further = await asyncio.to_thread(_versions, stands, upto)
    return "note.html", {
        "names": names_of(desk),
        "note": note,
        "beside": await _beside(desk, note) if stands.is_live else [],
        "stands": stands,
        "kept_at": to_rfc3339(stands.versions[0].at),
        "expires_at": None if stands.expires_at is None else to_rfc3339(stands.expires_at),
        "used_at": None if stands.used_at is None else to_rfc3339(stands.used_at),
        "versions": versions,
        "further": further,
        "source_as": await _source_as(desk, stands.versions[0].note.source),
        "links": [] if around is None else _links(around),
        "feedback": await _feedback(desk, note_id),
        "done": done_of(request),
        "other_id": id_of(request.query_params.get("other", "")),
        **acts,
        "key_names": {
            **acts["key_names"],
            **await desk.key_names(one["amendment"] and one["amendment"].by for one in versions),
        },
    }


async def _under_review(desk: Desk, note_id: str, may_see: MaySee) -> Page | None:
    """Show a note that waits for a review, or was refused in one; None for any other.

    What it says is shown to reviewers alone; whoever would see it once it is approved is told why it is not shown.
    """
    note = await desk.memory.review.withheld(desk.tenant, note_id)
    is_reviewer = desk.may("decide_notes")
    if note is None or not (is_reviewer or may_see(note["participants"])):
        return None
    if is_reviewer:
        note = shown_held(desk, note)
    else:
        note = {name: note[name] for name in ("note_id", "state", "since", "rule")}
    key_names = await desk.key_names([note.get("decided_by")])
    return "note_held.html", {"names": names_of(desk), "note": note, "key_names": key_names}


async def confirm_forgetting(desk: Desk, request: Request) -> Page:
    """Show what forgetting a note takes away, and ask once; or say that it is forgotten, and offer to undo that."""
    note_id = request.path_params["note_id"]
    preview = await _forgetting(desk, note_id, dryRun=True)
    return "forget.html", {"names": names_of(desk), "note_id": note_id, "preview": preview}


async def forget(desk: Desk, request: Request, form: Mapping[str, str]) -> str:
    """Forget a note; one that is protected only where the form says so."""
    note_id = request.path_params["note_id"]
    answer = await _forgetting(desk, note_id, force=form.get("force") == "on" or None)
    done = "forgotten" if answer is None or answer["deleted"] else "protected"
    return query("/notes", names_of(desk), done=done, note=note_id)


async def _forgetting(desk: Desk, note_id: str, **arguments: Any) -> Json | None:
    """Call the tool that forgets, and return its answer; None where the note is forgotten already.

    Raises:
        ToolRefused: there is no such note for the visitor.
    """
    answer = await desk.call("forget", agentId=desk.agent, id=note_id, **arguments)
    if "code" not in answer:  # of a note that is not there the tool answers, and does not refuse
        return answer
    tenant, may_see = desk.tenant, desk.note_masks.sees
    if await desk.memory.notes.is_forgotten(tenant, await desk.memory.note_id(tenant, note_id), may_see=may_see):
        return None
    raise ToolRefused({"code": answer["code"], "message": answer["error"]}, NoteNotFound.http_status)


async def open_notes(desk: Desk, note_ids: Collection[str | None]) -> frozenset[str]:
    """Return those of some notes whose pages open for the visitor; of what others keep, only its events may open."""
    ids = [note_id for note_id in note_ids if note_id]
    if not ids or "agent" not in desk.principal.faces:
        return frozenset()
    try:
        may_see = desk.note_masks.sees
    except (InvalidArgument, ParticipantsNotAllowed):  # notes are not read as this name
        return frozenset()
    return await desk.memory.notes.readable(desk.tenant, ids, may_see=may_see)


async def _beside(desk: Desk, note: Json) -> list[Json]:
    """Return what else is kept of a note's kind and subject, each statement once, the newest first.

    All of it stands: none replaced another, so only a person can tell which holds, or whether all do.
    """
    if note["topic"] == GENERAL or not desk.may("recall"):
        return []
    found = await desk.call(
        "recall",
        agentId=desk.agent,
        type=note["type"],
        topic=note["topic"],
        pageSize=_BESIDE,
        tokenBudget=_TOKENS,
        includeLinks=False,
    )
    others = [other for other in _newest_first(found["fragments"]) if _says_otherwise(note, other)]
    return list({" ".join(other["content"].split()): other for other in reversed(others)}.values())[::-1]


def _beside_each(notes: Sequence[Json]) -> Mapping[str, Json]:
    """Return, by note of a list, the newest other one in it of the same kind and subject that says something else."""
    beside: dict[str, Json] = {}
    newest_first = _newest_first(notes)
    for note in notes:
        other = next((other for other in newest_first if _says_otherwise(note, other)), None)
        if other is not None:
            beside[note["id"]] = {**other, "is_newer": other["created_at"] > note["created_at"]}
    return beside


def _newest_first(notes: Sequence[Json]) -> list[Json]:
    return sorted(notes, key=lambda note: note.get("created_at", ""), reverse=True)


def _says_otherwise(note: Json, other: Json) -> bool:
    """Tell whether two notes that stand are of one kind and subject, and say different things."""
    if note.get("superseded") or other.get("superseded") or note.get("topic") in (None, GENERAL):
        return False
    is_alike = (note.get("type"), note["topic"]) == (other.get("type"), other.get("topic"))
    return is_alike and note["content"].split() != other["content"].split()


def _versions(stands: NoteStanding, upto: int) -> tuple[list[Json], int | None]:
    """Return a page of the versions of a note, newest first, and the number of the version that follows it.

    Each version has how its text differs from the one before, where both are short enough to be read so.

    Args:
        upto: the number of the version that comes first; 0 for the newest.
    """
    older = [*stands.versions[1:], None]
    all_versions = [
        version
        for version in zip(stands.versions, older, stands.event_ids, strict=True)
        if not upto or version[0].version <= upto
    ]
    page = [
        {
            "version": version.version,
            "created_at": to_rfc3339(version.at),
            "speaker": version.speaker,
            "content": version.note.content,
            "event_id": event_id,
            "amendment": version.amendment,
            "parts": _parts(before, version),
            "changed": [] if before is None else _changed_fields(before.note, version.note),
        }
        for version, before, event_id in all_versions[:_VERSIONS]
    ]
    return page, all_versions[_VERSIONS][0].version if len(all_versions) > _VERSIONS else None


def _parts(before: NoteVersion | None, version: NoteVersion) -> list[Part] | None:
    """Return how a version's text differs from the one before; None where that is not shown."""
    if before is None or max(len(before.note.content), len(version.note.content)) > _COMPARED:
        return None
    return differences(before.note.content, version.note.content)


def _changed_fields(before: Any, after: Any) -> list[tuple[str, str, str]]:
    """Return the fields beside the text that a version changed: name, before and after."""
    names = ("kind", "topic", "importance", "anchor", "lifetime", "source")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return [(name, _told(old), _told(new)) for name, old, new in pairs if old != new]


def _told(value: Any) -> str:
    """Return the value of a note's field as a page shows it."""
    return str(round(value, 2) if isinstance(value, float) else value)


async def _source_as(desk: Desk, source: str | None) -> Sequence[str] | None:
    """Return as whom to ask for the event that a note's source names; None where it names none that opens."""
    if source is None or not source.startswith(EVENT_ID_PREFIX):
        return None
    return (await desk.events_opened_as([source])).get(source)


def _links(around: Neighbourhood) -> list[tuple[str, Sequence[LinkedNote]]]:
    """Return the notes at the other ends of a note's links, by what the link says of this note."""
    notes = {note.note_id: note for note in around.neighbours}
    said: dict[str, dict[str, LinkedNote]] = {}
    for link in around.links:
        leads = link.from_id == around.start.note_id
        other_id = link.to_id if leads else link.from_id
        words = _LINKS[link.relation][0 if leads else 1]
        if other_id in notes:
            said.setdefault(words, {})[other_id] = notes[other_id]
    return [(words, list(others.values())) for words, others in said.items()]


async def _feedback(desk: Desk, note_id: str) -> list[Json]:
    """Return what was said of answers that held a note, of the newest feedback that the visitor may see."""
    if not desk.may("query_event_nodes"):
        return []
    found = await desk.ask(
        "query_event_nodes", types=["myria.feedback"], include_internal=True, order="newest", limit=_FEEDBACK
    )
    nodes: list[Json] = found["root"]["children"]
    rated = [(node, (node.get("payload") or {}).get("feedback")) for node in nodes]
    return [
        {**said, "at": node["timestamp"], "event_id": node["event_id"]}
        for node, said in rated
        if isinstance(said, dict) and note_id in (said.get("notes") or ())
    ]


async def restore(desk: Desk, _request: Request, form: Mapping[str, str]) -> str:
    """Bring a forgotten note back, or a forgotten event, by its id."""
    answer = await desk.call("restore", agentId=desk.agent, id=form.get("note", "").strip())
    restored_id = str(answer["id"])
    if restored_id.startswith(EVENT_ID_PREFIX):
        return query(f"/events/{restored_id}", desk.names, done="restored")
    return query(f"/notes/{restored_id}", names_of(desk), done="restored")


ROUTES: Routes = (
    PageRoute("/notes", overview, form=Form(form, FIELDS), is_as_somebody=True),
    FormRoute("/notes/restore", restore, Form(overview, RESTORED)),
    PageRoute("/notes/{note_id}", note, is_as_somebody=True),
    PageRoute("/notes/{note_id}/forget", confirm_forgetting, ("append",), is_as_somebody=True),
    FormRoute("/notes/{note_id}/forget", forget),
)
