"""The tools of the core and of administration, in terms of the memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from myria.erasure.model import Selection, StartBounds
from myria.errors import (
    ErasureNotFound,
    InvalidArgument,
    SourceEventKeyTaken,
    UnavailableError,
)
from myria.log.event import NewEvent, parse_event, parse_events
from myria.log.limits import limits_of
from myria.notes.answertext import ShownAnswer
from myria_server.api.api_call import ApiCall, Json
from myria_server.api.coercion import understood
from myria_server.api.core import inputs
from myria_server.api.core.erasing import (
    EraseInput,
    ErasureReceiptInput,
    ErasureSelection,
    ErasuresInput,
    PreviewErasureInput,
)
from myria_server.api.core.reviewing import DecideNotesInput, ListHeldInput

_WITHDRAW_S = 20.0
"""Seconds that erase waits until no answer shows the events any more; the control plane does the rest."""


async def append_event(call: ApiCall, request: Any) -> Json:
    """Append one event (message, tool result, task update, marker) to the memory. It can be found at once. Give a
    source_event_key to make retries safe. Name in supersedes what it replaces.
    """

    def read_event(fields: Any) -> tuple[NewEvent, tuple[str, ...]]:
        supersedes: tuple[str, ...] = ()
        if isinstance(fields, dict) and "supersedes" in fields:
            supersedes = inputs.read(inputs.SupersedingInput, {"supersedes": fields["supersedes"]}).supersedes
            fields = {name: value for name, value in fields.items() if name != "supersedes"}
        return parse_event({} if fields is None else fields, limits, principal=call.principal), supersedes

    limits = limits_of(call.settings)
    event, supersedes = understood(inputs.AppendInput, request, read_event)
    if not supersedes:
        results = await call.memory.log.append_events(call.tenant, (event,))
        return results[0].to_json()
    async with call.memory.events_named(call.tenant, supersedes) as event_ids:
        result = await call.memory.withdrawals.append(
            call.tenant,
            event,
            supersedes=event_ids,
            may_see=call.principal.asking_beside(event.participants).sees,
            may_append=call.principal.need_channel,
        )
    return result.to_json()


async def append_events(call: ApiCall, request: Any) -> Json:
    """Append up to {batch_events} events, all or none, in the given order."""

    def read_events(fields: Any) -> list[NewEvent]:
        return parse_events({} if fields is None else fields, limits_of(call.settings), principal=call.principal)

    # At one go: 500 events of 4 MiB take 10 to 50 ms of CPU, and only two callers at a time have so large a body.
    events = understood(inputs.EventsInput, request, read_events)
    try:
        results = await call.memory.log.append_events(call.tenant, events)
    except SourceEventKeyTaken as error:
        raise error if "index" in error.details else error.at_index(0) from error
    return {"results": [result.to_json() for result in results]}


async def withdraw_events(call: ApiCall, request: inputs.WithdrawInput) -> Json:
    """Take events out of every answer, now and in old snapshots. They can be restored."""
    async with call.memory.events_named(call.tenant, request.event_ids) as event_ids:
        withdrawn = await call.memory.withdrawals.withdraw(
            call.tenant,
            event_ids,
            request.reason,
            may_see=call.principal.asking(request.participants).sees,
            may_append=call.principal.need_channel,
            dry_run=request.dry_run,
            by=call.principal.actor,
        )
    return withdrawn.to_json()


async def restore_events(call: ApiCall, request: inputs.NamedEventsInput) -> Json:
    """Bring withdrawn events back into answers."""
    async with call.memory.events_named(call.tenant, request.event_ids) as event_ids:
        restored = await call.memory.withdrawals.restore(
            call.tenant,
            event_ids,
            may_see=call.principal.asking(request.participants).sees,
            may_append=call.principal.need_channel,
            dry_run=request.dry_run,
            by=call.principal.actor,
        )
    return restored.to_json()


async def query_event_nodes(call: ApiCall, request: inputs.EventNodesInput) -> ShownAnswer:
    """Find the events that match a question best, as a tree of event nodes with payloads. Without a query: the most
    recent. You see only what you and all the participants you name may see.
    """
    query = request.query_value(call.principal)
    return await call.memory.show(call.tenant, query, may_name=call.principal.may_name)


async def query_references(call: ApiCall, request: inputs.ReferencesInput) -> ShownAnswer:
    """Find what matches a question as a tree of topics with summaries and references to events, fresh events included.
    You see only what you and all the participants you name may see.
    """
    query = request.query_value(call.principal)
    return await call.memory.show(call.tenant, query, may_name=call.principal.may_name)


async def get_event(call: ApiCall, request: inputs.EventLookupInput) -> Json:
    """Fetch exactly one event by its event_id. You see only what you and all the participants you name may see."""
    masks = call.principal.asking(request.participants)
    async with call.memory.events_named(call.tenant, (request.event_id,)) as event_ids:
        return await call.memory.retrieval.get_event(
            call.tenant,
            event_ids[0],
            masks,
            include_internal=request.include_internal,
            include_superseded=request.include_superseded,
        )


async def get_topic(call: ApiCall, request: inputs.TopicLookupInput) -> Json:
    """Fetch exactly one topic of the active snapshot by its topic_id. You see only what you and all the participants
    you name may see.
    """
    return await call.memory.retrieval.get_topic(
        call.tenant, request.topic_id, call.principal.asking(request.participants)
    )


async def get_active_snapshot(call: ApiCall, request: inputs.NothingInput) -> Json:
    """Metadata of the snapshot that is served now, or null before the first build."""
    return await call.memory.registry.active_snapshot(call.tenant)


async def list_snapshots(call: ApiCall, request: inputs.SnapshotsInput) -> Json:
    """The snapshots kept, newest first."""
    return await call.memory.registry.list_snapshots(call.tenant, limit=request.limit, cursor=request.cursor)


async def get_snapshot_status(call: ApiCall, request: inputs.NothingInput) -> Json:
    """How many events wait to be indexed, whether a build runs, how the last one ended."""
    return await call.memory.registry.status(call.tenant)


async def trigger_build(call: ApiCall, request: inputs.TriggerBuildInput) -> Json:
    """Ask for a rebuild of the topic index now; it ends as nothing_to_do if nothing is new."""
    return await call.memory.registry.request_build(
        call.tenant,
        full=request.full,
        hold=request.hold,
        force=request.force,
        reason=request.reason,
        actor=call.principal.actor,
        cause_key=None if request.idempotency_key is None else f"asked:{request.idempotency_key}",
    )


async def abort_build(call: ApiCall, request: inputs.AbortInput) -> Json:
    """Give up a build that waits, is queued, running or held; the active snapshot stays. A build that has ended in
    another way is refused with how it ended. Its events are built with the next new ones, or by trigger_build.
    """
    return await call.memory.registry.abort(
        call.tenant, request.build_id, actor=call.principal.actor, reason=request.reason
    )


async def publish_snapshot(call: ApiCall, request: inputs.PublishInput) -> Json:
    """Make a held snapshot the active one."""
    return await call.memory.registry.publish(
        call.tenant, request.snapshot_id, actor=call.principal.actor, reason=request.reason
    )


async def discard_snapshot(call: ApiCall, request: inputs.DiscardInput) -> Json:
    """Give up a held snapshot for good. Automatic rebuilds no longer wait for it."""
    return await call.memory.registry.discard(
        call.tenant, request.snapshot_id, actor=call.principal.actor, reason=request.reason
    )


async def rollback(call: ApiCall, request: inputs.RollbackInput) -> Json:
    """Make an earlier snapshot active again, at once. Automatic rebuilds pause until resumed."""
    return await call.memory.registry.rollback(
        call.tenant, request.to, actor=call.principal.actor, reason=request.reason
    )


async def resume_builds(call: ApiCall, request: inputs.ResumeInput) -> Json:
    """End the pause of automatic rebuilds that a rollback began. What the rollback took away is built again then."""
    return await call.memory.registry.resume(call.tenant, actor=call.principal.actor, reason=request.reason)


async def list_held_notes(call: ApiCall, request: ListHeldInput) -> Json:
    """Notes of the whole tenant that the policy of review (review.*) holds back, with their evidence and what they
    would replace; or those decided lately.
    """
    return await call.memory.review.listed(
        call.tenant,
        states=("approved", "refused") if request.state == "decided" else (request.state,),
        kind=request.kind,
        participant=request.participant,
        limit=request.limit,
        cursor=request.cursor,
    )


async def decide_notes(call: ApiCall, request: DecideNotesInput) -> Json:
    """Approve or refuse held notes, or take that back (hold). An approved note is found like any other, and replaces
    what it would replace; a refused one is never found.
    """
    if not request.note_ids:
        raise InvalidArgument("note_ids must name a note", field="note_ids")
    return await call.memory.review.decide_all(
        call.tenant, request.note_ids, request.decision, by=call.principal.actor, why=request.reason or ""
    )


async def _selection_of(call: ApiCall, request: ErasureSelection) -> Selection:
    return Selection(
        events=await call.memory.event_ids(call.tenant, request.event_ids),
        notes=request.note_ids,
        participants=request.of_participants,
        contexts=request.context_ids,
        query=request.query or "",
        sources=request.source_keys,
        shared=request.shared,
    )


async def preview_erasure(call: ApiCall, request: PreviewErasureInput) -> Json:
    """Count and list what an erasure would take, of the whole tenant; nothing is changed."""
    selection = await _selection_of(call, request)
    erasures = call.memory.erasures(call.principal)
    return (await erasures.plan(selection, after=request.after, limit=request.limit)).to_json()


async def erase(call: ApiCall, request: EraseInput) -> Json:
    """Erase events and all that was made of them, in every snapshot. It cannot be undone. No answer shows them from now
    on; removing goes on after the answer: follow it with get_erasures, and keep the receipt.
    """
    selection = await _selection_of(call, request)
    erasures = call.memory.erasures(call.principal)
    erasure_settings = call.settings.erasure
    bounds = StartBounds(
        expected=request.expected_events, most=erasure_settings.max_events, most_open=erasure_settings.max_open
    )
    erasure_id = await erasures.start(selection, reason=request.reason, bounds=bounds, key=request.idempotency_key)
    # The erasure is stored now, and the control plane carries it out even if this wait ends early.
    with suppress(TimeoutError, UnavailableError):
        async with asyncio.timeout(_WITHDRAW_S):
            await erasures.withdraw(erasure_id)
    return (await erasures.status(erasure_id)).to_json()


async def get_erasures(call: ApiCall, request: ErasuresInput) -> Json:
    """How far erasures are, newest first."""
    erasures = call.memory.erasures(call.principal)
    if request.erasure_id is not None:
        return {"erasures": [(await erasures.status(request.erasure_id)).to_json()]}
    return {"erasures": [status.to_json() for status in await erasures.newest(request.limit)]}


async def get_erasure_receipt(call: ApiCall, request: ErasureReceiptInput) -> Json:
    """The receipt of an erasure that is done. Keep it whole: its key is kept nowhere else."""
    erasures = call.memory.erasures(call.principal)
    receipt = await erasures.shown_receipt(request.erasure_id)
    if receipt is None:
        raise ErasureNotFound(
            f"erasure {request.erasure_id} is not done; ask get_erasures how far it is", id=request.erasure_id
        )
    return receipt.to_json()
