"""remember, batch_remember, forget, restore and amend."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from myria.access.agents import Acting
from myria.access.principal import Principal
from myria.errors import EventNotFound, InvalidArgument, MyriaError, NoteNotFound
from myria.log.event import NewEvent
from myria.notes.answertext import ShownAnswer
from myria.notes.commands import Notes, Remembered, note_absent
from myria.notes.details import Details
from myria.notes.drafting import Draft, NoteText
from myria.notes.kinds import Tier, tier
from myria.notes.likeness import said_by
from myria.notes.lines import on_one_line
from myria.notes.links import link_event
from myria.notes.model import Changes
from myria.notes.questions import RecallQuery
from myria.notes.similar import Alike
from myria.search.handles import EVENT_PREFIX
from myria.text.words import is_stopword, terms
from myria_server.api.core import inputs
from myria_server.api.memento.answering import AgentTools, Handler, Json
from myria_server.api.memento.note_schemas import (
    MAX_BATCH,
    AmendInput,
    BatchRememberInput,
    DetailsInput,
    ForgetInput,
    RememberInput,
    RestoreNoteInput,
)
from myria_server.api.memento.schemas import CONTRACT
from myria_server.api.results import REPORT

_AT_ONCE = 32
"""Notes of a batch that are kept at once: they share commits."""

_FORGOTTEN_AT_ONCE = 200
"""Notes that a topic or a text forgets at most."""

_CONFLICT_SHOWN = 100
_SHOWN = 300
"""Characters of a note in a list of what would be forgotten."""


class NoteTools(AgentTools):
    """The tools that keep, change and forget notes."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their tools."""
        return {
            "remember": self.remember,
            "batch_remember": self.batch_remember,
            "forget": self.forget,
            "restore": self.restore,
            "amend": self.amend,
        }

    async def remember(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Keep one note."""
        request = inputs.read(RememberInput, arguments)
        who = self.writing(principal, request)
        kept = await self._keep(self.memory.notes, principal, who, request, compare=True)
        similar = self.memory.similar
        if kept.alike is not None:
            alike = await similar.named(principal.tenant, kept.alike)
        else:
            scopes, said = [who.participants, *who.beside], said_by(kept.note.content, kept.note.keywords)
            alike = await similar.to(principal.tenant, scopes, said, but=kept.note_id)
        content = _kept_json(kept, request, alike)
        return self.answered(principal, request, content, _kept_text(kept, content))

    async def _keep(
        self, notes: Notes, principal: Principal, who: Acting, request: RememberInput, *, compare: bool = False
    ) -> Remembered:
        if request.scope == "session" and request.sessionId is None:
            raise InvalidArgument("scope session needs a sessionId: the session that it ends with", field="sessionId")
        draft = Draft(
            content=request.content,
            kind=request.type,
            topic=request.topic,
            keywords=request.keywords,
            importance=request.importance,
            source=request.source,
            lifetime=request.scope,
            anchor=request.isAnchor,
            session_id=request.sessionId,
            details=_details(request),
        )
        replaced = {name: await self.note_id(principal, name) for name in request.supersedes or ()}
        linked = {name: await self.note_id(principal, name) for name in request.linkedTo or ()}
        targets = list(dict.fromkeys(linked.values()))

        def links(note_id: str) -> list[NewEvent]:
            return [link_event(who.participants, note_id, target, "related") for target in targets]

        with self.as_named(replaced | linked):
            if targets:
                await self.memory.links.check(principal.tenant, targets, may_see=who.masks.sees)
            kept = await notes.remember(
                principal.tenant,
                who.participants,
                draft,
                contract=CONTRACT,
                speaker=who.speaker,
                key=request.idempotencyKey,
                supersedes=list(replaced.values()),
                may_see=who.masks.sees,
                dry_run=request.dryRun,
                beside=links,
                compare=compare,
                beside_in=who.beside,
            )
            if targets and not kept.created and not request.dryRun:
                await self.memory.links.complete(principal.tenant, kept.note_id, targets, may_see=who.masks.sees)
            return kept

    async def batch_remember(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Keep several notes, each by itself; those kept at once share commits."""
        request = inputs.read(BatchRememberInput, arguments)
        who = self.writing(principal, request)
        notes = self.memory.notes
        turns = asyncio.Semaphore(_AT_ONCE)
        items = [*request.items, *request.fragments]
        if not items or len(items) > MAX_BATCH:
            raise InvalidArgument(f"items must hold 1 to {MAX_BATCH} notes", field="items")
        results: list[Json] = [{} for _ in items]
        done = 0

        async def keep(index: int, item: Any) -> None:
            nonlocal done
            async with turns:
                results[index] = {"index": index, **await self._kept_or_refused(notes, principal, who, request, item)}
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
        text = "\n".join([f"Remembered {inserted} of {len(results)}.", *refusals])
        return self.answered(principal, request, content, text)

    async def _kept_or_refused(
        self, notes: Notes, principal: Principal, who: Acting, batch: BatchRememberInput, item: Any
    ) -> Json:
        try:
            if not isinstance(item, dict):
                raise InvalidArgument("an item must be an object: the arguments of remember", field="items")
            named = sorted({"agentId", "dryRun", "format"} & item.keys())
            if named:
                raise InvalidArgument(f"say {named[0]} beside items, for all of them", field=named[0])
            about = {} if batch.workspace is None or item.get("workspace") else {"workspace": batch.workspace}
            request = inputs.read(RememberInput, {**item, **about, "dryRun": batch.dryRun})
            kept = await self._keep(notes, principal, who, request)
        except MyriaError as error:
            return {"success": False, "error": error.message, "code": error.code}
        return {"success": True, "id": kept.note_id or None, "created": kept.created}

    async def forget(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Forget by id, or what a topic or a text finds."""
        request = inputs.read(ForgetInput, arguments)
        who = self.writing(principal, request)
        given = [name for name in ("id", "topic", "text") if getattr(request, name) is not None]
        if len(given) != 1:
            raise InvalidArgument("say what to forget by one of id, topic or text", field="id")
        if request.id is not None and _is_event(request.id):
            return await self._forget_event(principal, who, request, request.id)
        notes = self.memory.notes
        if request.id is not None:
            named = [await self.note_id(principal, request.id)]
        else:
            named = await self._found(principal, who, request)
        deleted, protected, missing = 0, 0, 0
        listed: list[Json] = []
        gone: list[str] = []
        for note_id in named:
            try:
                outcome = await notes.forget(
                    principal.tenant, note_id, may_see=who.masks.sees, force=request.force, dry_run=request.dryRun
                )
            except NoteNotFound:
                missing += 1
                continue
            deleted += outcome.forgotten
            if outcome.forgotten:
                gone.append(note_id)
            protected += outcome.protected
            listed.append({"id": note_id, "content": outcome.text[:_SHOWN], "protected": outcome.protected})
        content: Json = {"success": True, "deleted": deleted, "protected": protected}
        text = f"Forgot {deleted}."
        if gone and request.id is None:
            content["ids"] = gone  # by which restore brings them back
            text = f"Forgot {deleted}: {', '.join(gone)}."
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
        if missing and request.id is not None:
            absent = note_absent(request.id)
            content |= {"error": absent.message, "code": absent.code}
            text = absent.message
        return self.answered(principal, request, content, text)

    async def _forget_event(self, principal: Principal, who: Acting, request: ForgetInput, named: str) -> ShownAnswer:
        """Forget a raw event, by its id or handle."""
        content: Json = {"success": True, "deleted": 0, "protected": 0}
        try:
            outcome = await self.memory.withdraw_events(
                principal.tenant,
                [await self._event_id(principal, named)],
                "forgotten",
                may_see=who.masks.sees,
                may_append=principal.need_channel,
                dry_run=request.dryRun,
            )
        except EventNotFound:
            absent = _event_absent(named)
            content |= {"error": absent.message, "code": absent.code}
            return self.answered(principal, request, content, absent.message)
        if request.dryRun:
            content |= {"dryRun": True, "fragments": [{"id": named, "content": "", "protected": False}]}
            return self.answered(principal, request, content, f"Would forget {named}.")
        content["deleted"] = len(outcome.changed)
        return self.answered(principal, request, content, f"Forgot {content['deleted']}.")

    async def _found(self, principal: Principal, who: Acting, request: ForgetInput) -> list[str]:
        """Return the notes of a topic, or that say all words of a text: what is only near them, as recall shows it,
        stays. What the organisation shares is forgotten by id alone."""
        query = RecallQuery(
            masks=who.held,
            now=await self.memory.database.now(),
            text=request.text,
            topic=request.topic,
            page_size=_FORGOTTEN_AT_ONCE,
        )
        fragments = list(await self.memory.recall.find(principal.tenant, query))
        if request.text is not None:
            asked = terms(request.text)
            words = {term for term in asked if not is_stopword(term)} or set(asked)
            fragments = [note for note in fragments if words and note.says(words)]
        return [note.note_id for note in fragments if note.note_id is not None]

    async def restore(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Bring back what was forgotten: a note, or a raw event."""
        request = inputs.read(RestoreNoteInput, arguments)
        who = self.writing(principal, request)
        if _is_event(request.id):
            restored = await self._restore_event(principal, who, request.id)
        else:
            restored = await self.note_id(principal, request.id)
            with self.as_named({request.id: restored}):
                await self.memory.notes.restore(principal.tenant, restored, may_see=who.masks.sees)
        content = {"success": True, "id": restored, "restored": True}
        return self.answered(principal, request, content, f"Restored {restored}.")

    async def _restore_event(self, principal: Principal, who: Acting, named: str) -> str:
        """Bring a raw event back; return its id."""
        event_id = await self._event_id(principal, named)
        try:
            await self.memory.restore_events(
                principal.tenant, [event_id], may_see=who.masks.sees, may_append=principal.need_channel
            )
        except EventNotFound:
            raise _event_absent(named) from None
        return event_id

    async def _event_id(self, principal: Principal, named: str) -> str:
        """Return the id of the event that a caller names by id or handle."""
        (event_id,) = await self.memory.event_ids(principal.tenant, [named.strip().strip("[]")])
        return event_id

    async def amend(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Make a new version of a note."""
        request = inputs.read(AmendInput, arguments)
        if request.supersedes:
            raise InvalidArgument(
                "amend makes a new version under the same id; to put a note of its own in its place, remember it with "
                "supersedes: [id]",
                field="supersedes",
            )
        who = self.writing(principal, request)
        changes = Changes(
            content=request.content,
            kind=request.type,
            topic=request.topic,
            keywords=request.keywords,
            importance=request.importance,
            anchor=request.isAnchor,
            source=request.source,
            lifetime=request.scope,
            session_id=request.sessionId,
            details=_details(request),
        )
        if changes == Changes():
            raise InvalidArgument("say what to change: content, type or any other parameter of remember", field="")
        note_id = await self.note_id(principal, request.id)
        with self.as_named({request.id: note_id}):
            amended = await self.memory.notes.amend(
                principal.tenant,
                note_id,
                changes,
                may_see=who.masks.sees,
                contract=CONTRACT,
                speaker=who.speaker,
                dry_run=request.dryRun,
            )
        if amended.same_as is not None:
            content: Json = {"success": False, "updated": False, "merged": True, "existingId": amended.same_as}
            return self.answered(principal, request, content, f"Not changed: {amended.same_as} says that already.")
        content = {
            "success": True,
            "updated": True,
            "fragment": note_json(amended.note_id, amended.note, version=amended.version),
        }
        if amended.redacted:
            content["redacted"] = amended.redacted
        said = f"Amended {amended.note_id} (version {amended.version})."
        if request.dryRun:
            content |= {"updated": False, "dryRun": True}
            said = f"Would amend {amended.note_id} (version {amended.version})."
        elif not amended.changed:
            said = f"Not changed: {amended.note_id} says that already (version {amended.version})."
        return self.answered(principal, request, content, said)


def _details(request: DetailsInput) -> Details:
    """Return the details with which a note is kept."""
    return Details(
        context_summary=request.contextSummary,
        workspace=request.workspace,
        case_id=request.caseId,
        goal=request.goal,
        outcome=request.outcome,
        phase=request.phase,
        resolution_status=request.resolutionStatus,
        assertion_status=request.assertionStatus,
        affect=request.affect,
    )


def _is_event(name: str) -> bool:
    """Tell whether a name is that of an event: its id or its handle."""
    return name.strip().strip("[]").startswith((EVENT_PREFIX, "evt_"))


def _event_absent(named: str) -> EventNotFound:
    return EventNotFound(f"no event {named} is visible to you")


def _tier(note: NoteText) -> Tier:
    return tier(note.kind, note.importance, anchor=note.anchor, age_days=0, idle_days=0)


def note_json(note_id: str, note: NoteText, *, version: int) -> Json:
    """Return a version of a note as answers show it."""
    return {
        "id": note_id,
        "content": note.content,
        "type": note.kind,
        "topic": note.topic,
        "keywords": list(note.keywords),
        "importance": note.importance,
        "ttl_tier": _tier(note),
        "scope": note.lifetime,
        "is_anchor": note.anchor,
        "source": note.source,
        "version": version,
        **note.details.to_json(),
    }


def _kept_json(kept: Remembered, request: RememberInput, alike: Sequence[Alike]) -> Json:
    note = kept.note
    content: Json = {
        "success": True,
        "id": kept.note_id or None,
        "created": kept.created,
        "type": note.kind,
        "topic": note.topic,
        "keywords": list(note.keywords),
        "importance": note.importance,
        "ttl_tier": _tier(note),
        "scope": note.lifetime,
        "inferred": list(note.inferred),
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
