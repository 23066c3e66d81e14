"""The tools of the core and of administration, in terms of the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from myria.access.principal import Principal
from myria.erasure.model import Selection, StartBounds
from myria.errors import ErasureNotFound, SourceEventKeyTaken, UnavailableError
from myria.log.event import NewEvent, parse_event, parse_events
from myria.log.limits import limits_of
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.settings import Settings
from myria_server.api.coercion import understood
from myria_server.api.core import inputs
from myria_server.api.core.erasing import (
    EraseInput,
    ErasureReceiptInput,
    ErasureSelection,
    ErasuresInput,
    PreviewErasureInput,
)

Json = dict[str, Any]
_WITHDRAW_S = 20.0
"""Seconds that erase waits until no answer shows the events any more; the control plane does the rest."""

Handler = Callable[[Principal, Any], Awaitable[Json | ShownAnswer]]


def handlers(memory: Memory, settings: Settings) -> Mapping[str, Handler]:
    """Return the handlers of the tools; each function below has the name of its tool."""
    limits = limits_of(settings)

    async def append_event(principal: Principal, arguments: Any) -> Json:
        def read_event(fields: Any) -> tuple[NewEvent, tuple[str, ...]]:
            supersedes: tuple[str, ...] = ()
            if isinstance(fields, dict) and "supersedes" in fields:
                supersedes = inputs.read(inputs.SupersedingInput, {"supersedes": fields["supersedes"]}).supersedes
                fields = {name: value for name, value in fields.items() if name != "supersedes"}
            return parse_event({} if fields is None else fields, limits, principal=principal), supersedes

        event, supersedes = understood(inputs.AppendInput, arguments, read_event)
        if not supersedes:
            results = await memory.log.append_events(principal.tenant, (event,))
            return results[0].to_json()
        async with memory.events_named(principal.tenant, supersedes) as event_ids:
            result = await memory.append_superseding(
                principal.tenant,
                event,
                event_ids,
                may_see=principal.asking_beside(event.participants).sees,
                may_append=principal.need_channel,
            )
        return result.to_json()

    async def append_events(principal: Principal, arguments: Any) -> Json:
        def read_events(fields: Any) -> list[NewEvent]:
            return parse_events({} if fields is None else fields, limits, principal=principal)

        # At one go: 500 events of 4 MiB take 10 to 50 ms of CPU, and only two callers at a time have so large a body.
        events = understood(inputs.EventsInput, arguments, read_events)
        try:
            results = await memory.log.append_events(principal.tenant, events)
        except SourceEventKeyTaken as error:
            raise error if "index" in error.details else error.at_index(0) from error
        return {"results": [result.to_json() for result in results]}

    async def withdraw_events(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.WithdrawInput, arguments)
        async with memory.events_named(principal.tenant, request.event_ids) as event_ids:
            withdrawn = await memory.withdraw_events(
                principal.tenant,
                event_ids,
                request.reason,
                may_see=principal.asking(request.participants).sees,
                may_append=principal.need_channel,
                dry_run=request.dry_run,
            )
        return withdrawn.to_json()

    async def restore_events(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.RestoreInput, arguments)
        async with memory.events_named(principal.tenant, request.event_ids) as event_ids:
            restored = await memory.restore_events(
                principal.tenant,
                event_ids,
                may_see=principal.asking(request.participants).sees,
                may_append=principal.need_channel,
                dry_run=request.dry_run,
            )
        return restored.to_json()

    async def query_event_nodes(principal: Principal, arguments: Any) -> ShownAnswer:
        query = inputs.read(inputs.EventNodesInput, arguments).query_value(principal)
        return await memory.show(principal.tenant, query, may_name=principal.may_name)

    async def query_references(principal: Principal, arguments: Any) -> ShownAnswer:
        query = inputs.read(inputs.ReferencesInput, arguments).query_value(principal)
        return await memory.show(principal.tenant, query, may_name=principal.may_name)

    async def get_event(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.EventLookupInput, arguments)
        masks = principal.asking(request.participants)
        async with memory.events_named(principal.tenant, (request.event_id,)) as event_ids:
            return await memory.get_event(
                principal.tenant,
                event_ids[0],
                masks,
                include_internal=request.include_internal,
                include_superseded=request.include_superseded,
            )

    async def get_topic(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.TopicLookupInput, arguments)
        return await memory.get_topic(principal.tenant, request.topic_id, principal.asking(request.participants))

    async def get_active_snapshot(principal: Principal, arguments: Any) -> Json:
        inputs.read(inputs.NothingInput, arguments)
        return await memory.registry.active_snapshot(principal.tenant)

    async def list_snapshots(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.SnapshotsInput, arguments)
        return await memory.registry.list_snapshots(principal.tenant, limit=request.limit, cursor=request.cursor)

    async def get_snapshot_status(principal: Principal, arguments: Any) -> Json:
        inputs.read(inputs.NothingInput, arguments)
        return await memory.registry.status(principal.tenant)

    async def trigger_build(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.TriggerBuildInput, arguments)
        return await memory.registry.request_build(
            principal.tenant,
            full=request.full,
            hold=request.hold,
            force=request.force,
            reason=request.reason,
            actor=principal.actor,
        )

    async def publish_snapshot(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.PublishInput, arguments)
        return await memory.registry.publish(
            principal.tenant, request.snapshot_id, actor=principal.actor, reason=request.reason
        )

    async def discard_snapshot(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.DiscardInput, arguments)
        return await memory.registry.discard(
            principal.tenant, request.snapshot_id, actor=principal.actor, reason=request.reason
        )

    async def rollback(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(inputs.RollbackInput, arguments)
        return await memory.registry.rollback(
            principal.tenant, request.to, actor=principal.actor, reason=request.reason
        )

    async def resume_builds(principal: Principal, arguments: Any) -> Json:
        inputs.read(inputs.NothingInput, arguments)
        return await memory.registry.resume(principal.tenant)

    async def selection_of(principal: Principal, request: ErasureSelection) -> Selection:
        return Selection(
            events=await memory.event_ids(principal.tenant, request.event_ids),
            notes=request.note_ids,
            participants=request.of_participants,
            contexts=request.context_ids,
            query=request.query,
            sources=request.source_keys,
            shared=request.shared,
        )

    async def preview_erasure(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(PreviewErasureInput, arguments)
        selection = await selection_of(principal, request)
        erasures = await memory.erasures(principal)
        return (await erasures.plan(selection, after=request.after, limit=request.limit)).to_json()

    async def erase(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(EraseInput, arguments)
        selection = await selection_of(principal, request)
        erasures = await memory.erasures(principal)
        erasure_settings = settings.erasure
        bounds = StartBounds(
            expected=request.expected_events, most=erasure_settings.max_events, most_open=erasure_settings.max_open
        )
        erasure_id = await erasures.start(selection, reason=request.reason, bounds=bounds)
        # The erasure is stored now, and the control plane carries it out even if this wait ends early.
        with suppress(TimeoutError, UnavailableError):
            async with asyncio.timeout(_WITHDRAW_S):
                await erasures.withdraw(erasure_id)
        return (await erasures.status(erasure_id)).to_json()

    async def get_erasures(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(ErasuresInput, arguments)
        erasures = await memory.erasures(principal)
        if request.erasure_id is not None:
            return {"erasures": [(await erasures.status(request.erasure_id)).to_json()]}
        return {"erasures": [status.to_json() for status in await erasures.newest(request.limit)]}

    async def get_erasure_receipt(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(ErasureReceiptInput, arguments)
        erasures = await memory.erasures(principal)
        receipt = await erasures.shown_receipt(request.erasure_id)
        if receipt is None:
            raise ErasureNotFound(
                f"erasure {request.erasure_id} is not done; ask get_erasures how far it is", id=request.erasure_id
            )
        return receipt.to_json()

    return {
        handler.__name__: handler
        for handler in (
            append_event,
            append_events,
            withdraw_events,
            restore_events,
            query_event_nodes,
            query_references,
            get_event,
            get_topic,
            get_active_snapshot,
            list_snapshots,
            get_snapshot_status,
            trigger_build,
            publish_snapshot,
            discard_snapshot,
            rollback,
            resume_builds,
            preview_erasure,
            erase,
            get_erasures,
            get_erasure_receipt,
        )
    }
