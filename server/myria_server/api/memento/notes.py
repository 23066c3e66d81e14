"""remember, batch_remember, forget, restore, amend and link."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from myria.errors import EventNotFound, InvalidArgument, MyriaError, NoteNotFound
from myria.log.event import NewEvent
from myria.notes.commands import note_absent
from myria.notes.drafting import Draft, NoteText
from myria.notes.kinds import tier
from myria.notes.lines import on_one_line
from myria.notes.links import link_event
from myria.notes.model import Changes, Remembered
from myria.notes.similar import Alike
from myria.search.handles import EVENT_PREFIX
from myria_server.api.core import inputs
from myria_server.api.memento.calls import AgentCall, Answered, Json
from myria_server.api.memento.input_schemas import (
    CONTRACT,
    MAX_BATCH,
    AmendInput,
    BatchRememberInput,
    ForgetInput,
    LinkInput,
    NamedInput,
    RememberInput,
)
from myria_server.api.results import REPORT

_AT_ONCE = 32
"""Notes of a batch that are kept at once: they share commits."""

_FORGOTTEN_AT_ONCE = 200
"""Notes that a topic or a text forgets at most."""

_CONFLICT_SHOWN = 100
_SHOWN = 300
"""Characters of a note in a list of what would be forgotten."""


async def remember(call: AgentCall, request: RememberInput) -> Answered:
    """Keep one note."""
    kept = await _keep(call, request)
    alike = await call.memory.similar.of(call.tenant, kept, [call.who.participants, *call.who.beside])
    content = _kept_json(kept, request, alike)
    return content, _kept_text(kept, content)


async def _keep(call: AgentCall, request: RememberInput) -> Remembered:
    if request.scope == "session" and request.sessionId is None:
        raise InvalidArgument("scope session needs a sessionId: the session that it ends with", field="sessionId")
    replaced = await call.note_ids(request.supersedes)
    targets = await call.note_ids(request.linkedTo)
    may_see, links = call.who.masks.sees, call.memory.links

    async def beside(ids: Sequence[str], new: Sequence[int]) -> Sequence[NewEvent]:
        return [link_event(call.who.participants, ids[place], target, "related") for place in new for target in targets]

    if targets:
        await links.check(call.tenant, targets, may_see=may_see)
    kept = await call.memory.notes.remember(
        call.tenant,
        call.who.participants,
        Draft(**request.said()),
        contract=CONTRACT,
        speaker=call.who.speaker,
        key=request.idempotencyKey,
        supersedes=replaced,
        may_see=may_see,
        dry_run=request.dryRun,
        beside=beside,
    )
    if targets and not kept.created and not request.dryRun:
        await links.complete(call.tenant, kept.note_id, targets, may_see=may_see)
    return kept


async def batch_remember(call: AgentCall, request: BatchRememberInput) -> Answered:
    """Keep several notes, each by itself; those kept at once share commits."""
    items = [*request.items, *request.fragments]
    if not items or len(items) > MAX_BATCH:
        raise InvalidArgument(f"items must hold 1 to {MAX_BATCH} notes", field="items")
    slots = asyncio.Semaphore(_AT_ONCE)
    results: list[Json] = [{} for _ in items]
    done = 0

    async def keep(index: int, item: Any) -> None:
        nonlocal done
        async with slots:
            results[index] = {"index": index, **await _kept_or_refused(call, request, item)}
        done += 1
        if (report := REPORT.get()) is not None:
            await report(done, len(results))

    async with asyncio.TaskGroup() as group:
        for index, item in enumerate(items):
            group.create_task(keep(index, item))
    inserted = sum(1 for result in results if result.get("created"))
    content = {
        "success": True,
        "results": results,
        "inserted": inserted,
        "skipped": len(results) - inserted,
        "dryRun": request.dryRun,
    }
    refusals = [f"{result['index']}: {result['error']}" for result in results if not result["success"]]
    return content, "\n".join([f"Remembered {inserted} of {len(results)}.", *refusals])


async def _kept_or_refused(call: AgentCall, batch: BatchRememberInput, item: Any) -> Json:
    try:
        if not isinstance(item, dict):
            raise InvalidArgument("an item must be an object: the arguments of remember", field="items")
        named = sorted({"agentId", "dryRun", "format"} & item.keys())
        if named:
            raise InvalidArgument(f"say {named[0]} beside items, for all of them", field=named[0])
        about = {} if batch.workspace is None or item.get("workspace") else {"workspace": batch.workspace}
        kept = await _keep(call, inputs.read(RememberInput, {**item, **about, "dryRun": batch.dryRun}))
    except MyriaError as refusal:
        error = call.as_named(refusal)
        return {"success": False, "error": error.message, "code": error.code}
    return {"success": True, "id": kept.note_id or None, "created": kept.created}


async def forget(call: AgentCall, request: ForgetInput) -> Answered:
    """Forget by id, or what a topic or a text finds."""
    given = [name for name in ("id", "topic", "text") if getattr(request, name) is not None]
    if len(given) != 1:
        raise InvalidArgument("say what to forget by one of id, topic or text", field="id")
    if request.id is not None and _is_event(request.id):
        return await _forget_event(call, request.id, dry_run=request.dryRun)
    if request.id is not None:
        named = [await call.note_id(request.id)]
    else:
        # What the organisation shares is forgotten by id alone.
        named = await call.memory.recall.saying(
            call.tenant,
            call.who.held,
            now=await call.memory.database.now(),
            text=request.text,
            topic=request.topic,
            most=_FORGOTTEN_AT_ONCE,
        )
    gone: list[str] = []
    listed: list[Json] = []
    for note_id in named:
        try:
            outcome = await call.memory.notes.forget(
                call.tenant, note_id, may_see=call.who.masks.sees, force=request.force, dry_run=request.dryRun
            )
        except NoteNotFound:
            continue
        if outcome.forgotten:
            gone.append(note_id)
        listed.append({"id": note_id, "content": outcome.text[:_SHOWN], "protected": outcome.protected})
    protected = sum(item["protected"] for item in listed)
    content: Json = {"success": True, "deleted": len(gone), "protected": protected}
    text = f"Forgot {len(gone)}."
    if gone and request.id is None:
        content["ids"] = gone  # by which restore brings them back
        text = f"Forgot {len(gone)}: {', '.join(gone)}."
    if request.dryRun:
        content |= {"dryRun": True, "fragments": listed}
        lines = [
            f"{item['id']}{' (protected)' if item['protected'] else ''}: {on_one_line(item['content'])}"
            for item in listed
        ]
        text = "\n".join([f"Would forget {len(listed) - protected}{':' if lines else '.'}", *lines])
    if protected:
        content["reason"] = f"{protected} permanent: force forgets anchors and permanent notes too"
        between = "\n" if listed and request.dryRun else " "
        text += f"{between}{protected} protected: permanent notes and anchors need force."
    if request.id is not None and not listed:
        absent = note_absent(request.id)
        content |= {"error": absent.message, "code": absent.code}
        text = absent.message
    return content, text


async def _forget_event(call: AgentCall, named: str, *, dry_run: bool) -> Answered:
    """Forget a raw event, by its id or handle."""
    content: Json = {"success": True, "deleted": 0, "protected": 0}
    try:
        outcome = await call.memory.withdraw_events(
            call.tenant,
            [await _event_id(call, named)],
            "forgotten",
            may_see=call.who.masks.sees,
            may_append=call.principal.need_channel,
            dry_run=dry_run,
        )
    except EventNotFound:
        absent = _event_absent(named)
        return content | {"error": absent.message, "code": absent.code}, absent.message
    if dry_run:
        listed = [{"id": named, "content": "", "protected": False}]
        return content | {"dryRun": True, "fragments": listed}, f"Would forget {named}."
    content["deleted"] = len(outcome.changed)
    return content, f"Forgot {content['deleted']}."


async def restore(call: AgentCall, request: NamedInput) -> Answered:
    """Bring back what was forgotten: a note, or a raw event."""
    if _is_event(request.id):
        restored = await _event_id(call, request.id)
        try:
            await call.memory.restore_events(
                call.tenant, [restored], may_see=call.who.masks.sees, may_append=call.principal.need_channel
            )
        except EventNotFound:
            raise _event_absent(request.id) from None
    else:
        restored = await call.note_id(request.id)
        await call.memory.notes.restore(call.tenant, restored, may_see=call.who.masks.sees)
    return {"success": True, "id": restored, "restored": True}, f"Restored {restored}."


async def _event_id(call: AgentCall, named: str) -> str:
    """Return the id of the event that a caller names by id or handle."""
    (event_id,) = await call.memory.event_ids(call.tenant, [named.strip().strip("[]")])
    return event_id


async def amend(call: AgentCall, request: AmendInput) -> Answered:
    """Make a new version of a note."""
    if request.supersedes:
        raise InvalidArgument(
            "amend makes a new version under the same id; to put a note of its own in its place, remember it with "
            "supersedes: [id]",
            field="supersedes",
        )
    changes = Changes(**request.said())
    if changes == Changes():
        raise InvalidArgument("say what to change: content, type or any other parameter of remember", field="")
    amended = await call.memory.notes.amend(
        call.tenant,
        await call.note_id(request.id),
        changes,
        may_see=call.who.masks.sees,
        contract=CONTRACT,
        speaker=call.who.speaker,
        dry_run=request.dryRun,
    )
    if amended.same_as is not None:
        same: Json = {"success": False, "updated": False, "merged": True, "existingId": amended.same_as}
        return same, f"Not changed: {amended.same_as} says that already."
    fragment = note_json(amended.note_id, amended.note, version=amended.version)
    content: Json = {"success": True, "updated": True, "fragment": fragment}
    if amended.redacted:
        content["redacted"] = amended.redacted
    if request.dryRun:
        content |= {"updated": False, "dryRun": True}
        return content, f"Would amend {amended.note_id} (version {amended.version})."
    if not amended.changed:
        return content, f"Not changed: {amended.note_id} says that already (version {amended.version})."
    return content, f"Amended {amended.note_id} (version {amended.version})."


async def link(call: AgentCall, request: LinkInput) -> Answered:
    """Link two notes."""
    await call.memory.links.link(
        call.tenant,
        await call.note_id(request.fromId),
        [await call.note_id(request.toId)],
        request.relationType,
        may_see=call.who.masks.sees,
        weight=1.0 if request.weight is None else request.weight,
        replaces=request.replaces,
        dry_run=request.dryRun,
    )
    content: Json = {"success": True, "linked": not request.dryRun, "relationType": request.relationType}
    if request.dryRun:
        content["dryRun"] = True
    return content, f"{'Would link' if request.dryRun else 'Linked'}: {request.relationType}."


def _is_event(name: str) -> bool:
    """Tell whether a name is that of an event: its id or its handle."""
    return name.strip().strip("[]").startswith((EVENT_PREFIX, "evt_"))


def _event_absent(named: str) -> EventNotFound:
    return EventNotFound(f"no event {named} is visible to you")


def _about_json(note: NoteText) -> Json:
    return {
        "type": note.kind,
        "topic": note.topic,
        "keywords": list(note.keywords),
        "importance": note.importance,
        "ttl_tier": tier(note.kind, note.importance, anchor=note.anchor, age_days=0, idle_days=0),
        "scope": note.lifetime,
    }


def note_json(note_id: str, note: NoteText, *, version: int) -> Json:
    """Return a version of a note as answers show it."""
    return {
        "id": note_id,
        "content": note.content,
        **_about_json(note),
        "is_anchor": note.anchor,
        "source": note.source,
        "version": version,
        **note.details.to_json(),
    }


def _kept_json(kept: Remembered, request: RememberInput, alike: Sequence[Alike]) -> Json:
    content: Json = {
        "success": True,
        "id": kept.note_id or None,
        "created": kept.created,
        **_about_json(kept.note),
        "inferred": list(kept.note.inferred),
        "conflicts": [
            {
                "existing_id": other.note_id,
                "existing_content": other.text[:_CONFLICT_SHOWN],
                "similarity": other.similarity,
                "recommendation": "amend or supersede it if this replaces it; else link them",
            }
            for other in alike
        ],
    }
    if kept.redacted:
        content["redacted"] = kept.redacted
    if request.dryRun:
        content["dryRun"] = True
    return content


def _kept_text(kept: Remembered, content: Json) -> str:
    said = f"{content['type']}, topic {content['topic']}"
    if kept.created:
        begin = f"Remembered as {kept.note_id} ({said})."
    elif kept.note_id:
        begin = f"Remembered already as {kept.note_id}."
    else:
        begin = f"Would be remembered ({said})."
    taken = ", ".join(f"{count} {kind}" for kind, count in kept.redacted.items())
    begin = f"{begin} Taken out: {taken}." if taken else begin
    similar = [f"Similar: {other['existing_content']} ({other['existing_id']})" for other in content["conflicts"]]
    return "\n".join([begin, *similar])
