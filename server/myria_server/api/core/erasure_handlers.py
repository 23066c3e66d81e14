"""The tools that erase, for administrators: they begin an erasure, and the control plane carries it out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from myria.access.principal import Principal
from myria.erasure.model import Selection, StartBounds
from myria.errors import ErasureNotFound, UnavailableError
from myria.memory import Memory
from myria.settings import Settings
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
"""Seconds for which the answer waits until no other answer shows the events; the control plane does the rest."""


def handlers(memory: Memory, settings: Settings) -> Mapping[str, Callable[[Principal, Any], Awaitable[Json]]]:
    """Return the handler of each tool by its name."""

    async def selected(principal: Principal, request: ErasureSelection) -> Selection:
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
        selection = await selected(principal, request)
        erasures = await memory.erasures(principal)
        return (await erasures.plan(selection, after=request.after, limit=request.limit)).to_json()

    async def erase(principal: Principal, arguments: Any) -> Json:
        request = inputs.read(EraseInput, arguments)
        selection = await selected(principal, request)
        erasures = await memory.erasures(principal)
        limits = settings.erasure
        bounds = StartBounds(expected=request.expected_events, most=limits.max_events, most_open=limits.max_open)
        erasure_id = await erasures.start(selection, reason=request.reason, bounds=bounds)
        # It has begun, and is carried out whatever happens to this request.
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

    return {handler.__name__: handler for handler in (preview_erasure, erase, get_erasures, get_erasure_receipt)}
