"""remember, batch_remember, forget, restore, amend and link."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from myria.errors import EventNotFound, InvalidArgument, MyriaError, NoteNotFound
from myria.log.event import NewEvent
from myria.notes.drafting import Draft, NoteText
from myria.notes.finding import note_absent
from myria.notes.kinds import tier
from myria.notes.lines import on_one_line
from myria.notes.links import link_event
from myria.notes.model import Amendment, Changes, Remembered
from myria.notes.similar import Alike, similar_notes
from myria.search.handles import EVENT_PREFIX
from myria.topics.lines import counted
from myria_server.api.api_call import REPORT, Json
from myria_server.api.core import inputs
from myria_server.api.memento.calls import AgentCall, Answered
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

_KEPT_AT_ONCE = 32
"""Notes of a batch that are kept at once: they share commits."""

_FORGOTTEN_AT_ONCE = 200
"""Notes that a topic or a text forgets at most."""

_CONFLICT_CHARACTERS = 100
_SHOWN_CHARACTERS = 300
"""Characters of a note in a list of what would be forgotten."""


async def remember(call: AgentCall, request: RememberInput) -> Answered:
    """Keep a fact, decision, preference, procedure or error for later conversations. Only content is needed. scope
    session: forgotten when sessionId ends. isAnchor: never fades. supersedes: ids it replaces.
    """
    kept = await _keep_note(call, request)
    scopes = [call.who.participants, *call.who.beside]
    content = _kept_json(kept, request, await similar_notes(call.memory.appending, call.tenant, kept, scopes))
    return content, _kept_text(kept, content)


async def _keep_note(call: AgentCall, request: RememberInput) -> Remembered:
    """Keep one note, with its links and in place of those that it supersedes."""
    if request.scope == "session" and request.sessionId is None:
        raise InvalidArgument("scope session needs a sessionId: the session that it ends with", field="sessionId")
    superseded_ids = await call.note_ids(request.supersedes)
    linked_ids = await call.note_ids(request.linkedTo)
    may_see, links = call.who.masks.sees, call.memory.links

    async def with_links(
        note_ids: Sequence[str], new_places: Sequence[int], events: Sequence[NewEvent]
    ) -> Sequence[NewEvent]:
        link_events = [
            link_event(call.who.participants, note_ids[place], target, "related")
            for place in new_places
            for target in linked_ids
        ]
        return [*events, *link_events]

    if linked_ids:
        await links.check(call.tenant, linked_ids, may_see=may_see, also_held=True)
    kept = await call.memory.notes.remember(
        call.tenant,
        call.who.participants,
        Draft(**request.said()),
        contract=CONTRACT,
        speaker=call.who.speaker,
        key=request.idempotencyKey,
        supersedes=superseded_ids,
        may_see=may_see,
        dry_run=request.dryRun,
        arrange=with_links,
    )
    # A note that was kept before got no link events with it, so links that are missing are added now.
    if linked_ids and not kept.created and not request.dryRun and not kept.held:
        await links.complete(call.tenant, kept.note_id, linked_ids, may_see=may_see)
    return kept


async def batch_remember(call: AgentCall, request: BatchRememberInput) -> Answered:
    """Keep up to 200 notes at once; each is kept or refused by itself."""
    items = [*request.items, *request.fragments]
    if not items or len(items) > MAX_BATCH:
        raise InvalidArgument(f"items must hold 1 to {MAX_BATCH} notes", field="items")
    slots = asyncio.Semaphore(_KEPT_AT_ONCE)
    results: list[Json] = [{} for _ in items]
    done = 0

    async def keep(index: int, item: Any) -> None:
        nonlocal done
        async with slots:
            results[index] = {"index": index, **await _keep_item(call, request, item)}
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
    held = sum(1 for result in results if result.get("held"))
    waiting = [f"{counted(held, 'note')} waiting for a review."] if held else []
    return content, "\n".join([f"Remembered {inserted} of {len(results)}.", *waiting, *refusals])


async def _keep_item(call: AgentCall, batch: BatchRememberInput, item: Any) -> Json:
    """Keep one note of a batch; return its result, or the refusal as a result."""
    try:
        if not isinstance(item, dict):
            raise InvalidArgument("an item must be an object: the arguments of remember", field="items")
        misplaced = sorted({"agentId", "dryRun", "format"} & item.keys())
        if misplaced:
            raise InvalidArgument(f"say {misplaced[0]} beside items, for all of them", field=misplaced[0])
        shared_fields = {} if batch.workspace is None or item.get("workspace") else {"workspace": batch.workspace}
        kept = await _keep_note(call, inputs.read(RememberInput, {**item, **shared_fields, "dryRun": batch.dryRun}))
    except MyriaError as refusal:
        error = call.as_named(refusal)
        return {"success": False, "error": error.message, "code": error.code}
    outcome: Json = {"success": True, "id": kept.note_id or None, "created": kept.created}
    return outcome | ({"held": True} if kept.held else {})


async def forget(call: AgentCall, request: ForgetInput) -> Answered:
    """Take notes out of memory by id, or all of a topic, or what a text finds (list them by dryRun first). restore
    undoes it.
    """
    criteria = [name for name in ("id", "topic", "text") if getattr(request, name) is not None]
    if len(criteria) != 1:
        raise InvalidArgument("say what to forget by one of id, topic or text", field="id")
    if request.id is not None and _is_event(request.id):
        return await _forget_event(call, request.id, dry_run=request.dryRun)
    if request.id is not None:
        note_ids = [await call.note_id(request.id)]
    else:
        # What the organisation shares is forgotten by id alone.
        note_ids = await call.memory.recall.saying(
            call.tenant,
            call.who.held,
            now=await call.memory.database.now(),
            text=request.text,
            topic=request.topic,
            most=_FORGOTTEN_AT_ONCE,
        )
    forgotten_ids: list[str] = []
    listed: list[Json] = []
    for note_id in note_ids:
        try:
            outcome = await call.memory.notes.forget(
                call.tenant,
                note_id,
                may_see=call.who.masks.sees,
                force=request.force,
                dry_run=request.dryRun,
                by=call.principal.actor,
            )
        except NoteNotFound:
            continue
        if outcome.forgotten:
            forgotten_ids.append(note_id)
        listed.append({"id": note_id, "content": outcome.text[:_SHOWN_CHARACTERS], "protected": outcome.protected})
    protected = sum(item["protected"] for item in listed)
    content: Json = {"success": True, "deleted": len(forgotten_ids), "protected": protected}
    text = f"Forgot {len(forgotten_ids)}."
    if forgotten_ids and request.id is None:
        content["ids"] = forgotten_ids  # restore takes these
        text = f"Forgot {len(forgotten_ids)}: {', '.join(forgotten_ids)}."
    if request.dryRun:
        content |= {"dryRun": True, "fragments": listed}
        lines = [
            f"{item['id']}{' (protected)' if item['protected'] else ''}: {on_one_line(item['content'])}"
            for item in listed
        ]
        text = "\n".join([f"Would forget {len(listed) - protected}{':' if lines else '.'}", *lines])
    if protected:
        content["reason"] = f"{protected} permanent: force forgets anchors and permanent notes too"
        separator = "\n" if listed and request.dryRun else " "
        text += f"{separator}{protected} protected: permanent notes and anchors need force."
    if request.id is not None and not listed:
        absent = note_absent(request.id)
        content |= {"error": absent.message, "code": absent.code}
        text = absent.message
    return content, text


async def _forget_event(call: AgentCall, event_name: str, *, dry_run: bool) -> Answered:
    """Forget a raw event, by its id or handle."""
    content: Json = {"success": True, "deleted": 0, "protected": 0}
    try:
        outcome = await call.memory.withdrawals.withdraw(
            call.tenant,
            [await _event_id(call, event_name)],
            "forgotten",
            may_see=call.who.masks.sees,
            may_append=call.principal.need_channel,
            dry_run=dry_run,
            by=call.principal.actor,
        )
    except EventNotFound:
        absent = _event_not_found(event_name)
        return content | {"error": absent.message, "code": absent.code}, absent.message
    if dry_run:
        listed = [{"id": event_name, "content": "", "protected": False}]
        return content | {"dryRun": True, "fragments": listed}, f"Would forget {event_name}."
    content["deleted"] = len(outcome.changed)
    return content, f"Forgot {content['deleted']}."


async def restore(call: AgentCall, request: NamedInput) -> Answered:
    """Bring a forgotten note or raw event back, by its id or handle."""
    if _is_event(request.id):
        restored_id = await _event_id(call, request.id)
        try:
            await call.memory.withdrawals.restore(
                call.tenant,
                [restored_id],
                may_see=call.who.masks.sees,
                may_append=call.principal.need_channel,
                by=call.principal.actor,
            )
        except EventNotFound:
            raise _event_not_found(request.id) from None
    else:
        restored_id = await call.note_id(request.id)
        await call.memory.notes.restore(call.tenant, restored_id, may_see=call.who.masks.sees, by=call.principal.actor)
    return {"success": True, "id": restored_id, "restored": True}, f"Restored {restored_id}."


async def _event_id(call: AgentCall, event_name: str) -> str:
    """Return the id of the event that a caller names by id or handle."""
    (event_id,) = await call.memory.event_ids(call.tenant, [event_name.strip().strip("[]")])
    return event_id


async def amend(call: AgentCall, request: AmendInput) -> Answered:
    """Correct a note: a new version under the same id."""
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
        amendment=None if request.reason is None else Amendment(by=call.principal.actor, why=request.reason),
        version=request.version,
    )
    if amended.same_as is not None:
        unchanged: Json = {"success": False, "updated": False, "merged": True, "existingId": amended.same_as}
        return unchanged, f"Not changed: {amended.same_as} says that already."
    fragment = note_json(amended.note_id, amended.note, version=amended.version)
    content: Json = {"success": True, "updated": True, "fragment": fragment}
    if amended.redacted:
        content["redacted"] = amended.redacted
    if amended.held_for is not None and request.dryRun:
        content |= {"updated": False, "held": True, "dryRun": True}
        return content, f"Would wait for a review. {amended.held_for} would stay as it is until that is approved."
    if amended.held_for is not None:
        content |= {"updated": False, "held": True}
        return content, (
            f"Waits for a review as {amended.note_id}. {amended.held_for} stays as it is until that is approved."
        )
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
    """Tell whether a caller's name for something is an event's id or handle, perhaps in the brackets of a listing."""
    return name.strip().strip("[]").startswith((EVENT_PREFIX, "evt_"))


def _event_not_found(event_name: str) -> EventNotFound:
    return EventNotFound(f"no event {event_name} is visible to you")


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


def _kept_json(kept: Remembered, request: RememberInput, similar_notes: Sequence[Alike]) -> Json:
    """Return the structured answer of remember; similar notes are its `conflicts`."""
    content: Json = {
        "success": True,
        "id": kept.note_id or None,
        "created": kept.created,
        **_about_json(kept.note),
        "inferred": list(kept.note.inferred),
        "conflicts": [
            {
                "existing_id": other.note_id,
                "existing_content": other.text[:_CONFLICT_CHARACTERS],
                "similarity": other.similarity,
                "recommendation": "amend or supersede it if this replaces it; else link them",
            }
            for other in similar_notes
        ],
    }
    if kept.redacted:
        content["redacted"] = kept.redacted
    if request.dryRun:
        content["dryRun"] = True
    if kept.held:
        content["held"] = True
    return content


def _kept_text(kept: Remembered, content: Json) -> str:
    """Return the answer of remember in words, from the note and its structured answer."""
    placement = f"{content['type']}, topic {content['topic']}"
    if kept.held and kept.note_id:
        first_line = f"Held for a review as {kept.note_id} ({placement}): nobody finds it before it is approved."
    elif kept.held:
        first_line = f"Would be held for a review ({placement})."
    elif kept.created:
        first_line = f"Remembered as {kept.note_id} ({placement})."
    elif kept.note_id:
        first_line = f"Remembered already as {kept.note_id}."
    else:
        first_line = f"Would be remembered ({placement})."
    redactions = ", ".join(f"{count} {kind}" for kind, count in kept.redacted.items())
    first_line = f"{first_line} Taken out: {redactions}." if redactions else first_line
    similar = [f"Similar: {other['existing_content']} ({other['existing_id']})" for other in content["conflicts"]]
    return "\n".join([first_line, *similar])
