"""memory-tools' API of turns: what a host calls before and after each turn."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import orjson

from myria.access.agents import check_not_reserved, reserved_names
from myria.access.principal import Principal
from myria.errors import InvalidArgument, PayloadTooLarge, ToolNotEnabled, TurnBusy
from myria.log.scopes import canonical_participants
from myria.memory import Memory
from myria.notes.turns.model import Session
from myria.notes.turns.preparing import Before
from myria.notes.turns.shadow import (
    UNREADABLE,
    Aspect,
    Call,
    ClientResult,
    Comparison,
    Outcome,
    compare_after,
    compare_before,
)
from myria.notes.turns.storing import FinishedTurn
from myria.search.cursors import signed_body, signed_text
from myria.settings import Settings
from myria.settings.serving import TurnsMode
from myria_server.api.core import inputs
from myria_server.api.turns.schemas import (
    MAX_TOKEN,
    AfterTurnInput,
    BeforeTurnInput,
    ListDirInput,
    MaintenanceInput,
    RunTurnInput,
    SessionInput,
    TurnInput,
    client_result,
    refused,
)

__all__ = ["handlers", "refused"]

Json = dict[str, Any]
Handler = Callable[[Principal, Any], Awaitable[Json]]
TurnConflict = Literal["stored", "under_way"]

_TOKEN_PURPOSE = b"myria.turn.v1"
_MAX_OPENED_TOKEN_BYTES = 4 * MAX_TOKEN
"""Bytes that a token may unpack to. The request that made it was bounded: this only guards against our own mistakes."""


class TurnCounters(Protocol):
    """What is counted of turns; `ServerMetrics` does it."""

    def turn_stored(self, facts: Mapping[str, int]) -> None:
        """Count the facts, by tier, that a turn brought when it was stored."""

    def turn_conflicted(self, state: TurnConflict) -> None:
        """Count a turn that came again."""

    def turn_compared(self, call: Call, aspect: Aspect, outcome: Outcome) -> None:
        """Count an aspect in which an answer was compared with what the host computed itself."""

    def turn_compacted(self) -> None:
        """Count a prompt in which a summary stands for earlier items."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _TurnCall:
    """A call of a tool. `mode` says whether answers are compared with what hosts compute themselves."""

    principal: Principal
    request: Any
    mode: TurnsMode

    @property
    def tenant(self) -> str:
        return self.principal.tenant


def handlers(memory: Memory, settings: Settings, counters: TurnCounters) -> Mapping[str, Handler]:
    """Return the handlers of this API's tools, by tool name."""
    tools = _TurnTools(memory, settings, counters)
    return {
        "memory_before_turn": tools.handler_of(BeforeTurnInput, tools.before),
        "memory_after_turn": tools.handler_of(AfterTurnInput, tools.after),
        "memory_run_turn": tools.handler_of(RunTurnInput, tools.run),
        "memory_run_maintenance": tools.handler_of(MaintenanceInput, tools.maintain),
        "memory_list_dir_with_abstract": tools.handler_of(ListDirInput, tools.list_directories),
    }


class _TurnTools:
    def __init__(self, memory: Memory, settings: Settings, counters: TurnCounters) -> None:
        self._memory = memory
        self._counters = counters
        self._settings = settings.turns
        self._reserved = reserved_names(settings.auth, settings.rest)

    def handler_of(self, model: type[SessionInput], work: Callable[[_TurnCall], Awaitable[Json]]) -> Handler:
        """Return a handler that reads its arguments as `model` and passes the call to `work`."""

        async def run(principal: Principal, arguments: Any) -> Json:
            mode = await self._mode_of(principal)
            return await work(_TurnCall(principal=principal, request=inputs.read(model, arguments), mode=mode))

        return run

    async def before(self, call: _TurnCall) -> Json:
        """Prepare a turn: return the items of its prompt, and what they were recalled from."""
        request: BeforeTurnInput = call.request
        self._check_limits(request.conversation_items, request.current_input)
        history, current = request.parts()
        session = self._session_of(call)
        before = Before(session=session, history=history, current=current, max_input_tok=request.max_input_tok)
        now = await self._memory.database.now()
        prepared = await self._memory.before_turns.prepare(call.tenant, before, now=now)
        if prepared.compacted:
            self._counters.turn_compacted()
        turn_id = request.turn_id or new_turn_id()
        self._compare(call, session, turn_id, call_name="before", compare_with=partial(compare_before, prepared))
        return {
            "input_items": list(prepared.items),
            "recall_fact_ids": list(prepared.fact_ids),
            "recall_insight_ids": list(prepared.insight_ids),
            "context_token_count": prepared.tokens,
        }

    async def after(self, call: _TurnCall) -> Json:
        """Store a finished turn."""
        request: AfterTurnInput = call.request
        self._check_limits(request.conversation_items, request.input_items, request.output_items)
        current_items: Sequence[Json] = request.split()[1] if request.conversation_items else ()
        turn = FinishedTurn(
            session=self._session_of(call),
            turn_id=request.turn_id or new_turn_id(),
            given=current_items or request.input_items,
            came_out=request.output_items,
            user_id=request.user_id,
            is_current=bool(current_items),
        )
        await self._store(call, turn)
        return {"ok": True}

    async def run(self, call: _TurnCall) -> Json:
        """Prepare a turn and return a token with it; called with that token, store the turn."""
        request: RunTurnInput = call.request
        secret = await self._memory.retrieval.secret(call.tenant)
        if request.operation_token is None:
            turn_id = request.turn_id or new_turn_id()
            session = self._session_of(call)
            call.principal.need_channel(session.channel)
            prepared = await self.before(call)
            token = _make_token(call, session, turn_id, request.parts()[1], secret=secret)
            return {**prepared, "operation_token": token, "turn_id": turn_id}
        first_call = _open_token(request.operation_token, call.tenant, secret=secret)
        names = ("project", "session_id", "turn_id", "user_id")
        call = replace(call, request=TurnInput(**{name: first_call[name] for name in names}))
        session = self._session_of(call)
        if session.owner.hex() != first_call["owner"]:
            raise _invalid_token()
        self._check_limits(first_call["current"], request.output_items)
        turn = FinishedTurn(
            session=session,
            turn_id=first_call["turn_id"],
            given=first_call["current"],
            came_out=request.output_items,
            user_id=first_call["user_id"],
            is_current=True,
        )
        await self._store(call, turn)
        return {"ok": True, "turn_id": first_call["turn_id"]}

    async def maintain(self, call: _TurnCall) -> Json:
        """Remove what has expired from a session."""
        session = self._session_of(call)
        call.principal.need_channel(session.channel)
        await self._memory.turn_maintenance.run(call.tenant, session, self._memory.turns)
        return {"ok": True}

    async def list_directories(self, call: _TurnCall) -> Json:
        """List the directories of a session's memory below a path, each with its summary."""
        request: ListDirInput = call.request
        summaries = await self._memory.directories.below(
            call.tenant,
            self._session_of(call),
            request.path or "",
            depth=request.depth,
            limit=request.limit,
            now=await self._memory.database.now(),
        )
        return {"summaries": summaries}

    async def _mode_of(self, principal: Principal) -> TurnsMode:
        """Return whether answers are compared with what hosts compute themselves.

        Raises:
            ToolNotEnabled: turns are not served to this tenant.
        """
        mode = (await self._memory.quotas.of(principal.tenant)).turns
        if mode == "off":
            raise ToolNotEnabled("turns are off for this tenant; an administrator allows them by `myria turns mode`")
        return mode or ("shadow" if self._settings.shadow else "on")

    async def _store(self, call: _TurnCall, turn: FinishedTurn) -> None:
        """Store a turn and count its facts, or count that it was stored, or is being stored, already."""
        call.principal.need_channel(turn.session.channel)
        try:
            stored = await self._memory.turns.store(call.tenant, turn)
        except TurnBusy as busy:
            if busy.details.get("under_way"):
                self._counters.turn_conflicted("under_way")
            raise
        self._counters.turn_stored(stored.facts)
        if stored.is_new:
            compare_with = partial(compare_after, stored.found, stored.given)
            self._compare(call, turn.session, turn.turn_id, call_name="after", compare_with=compare_with)
        else:
            self._counters.turn_conflicted("stored")

    def _compare(
        self,
        call: _TurnCall,
        session: Session,
        turn_id: str,
        *,
        call_name: Call,
        compare_with: Callable[[ClientResult], list[Comparison]],
    ) -> None:
        """In shadow mode, compare an answer with the host's own result, in the background."""
        host_result = call.request.client_result
        if call.mode != "shadow" or host_result is None:
            return

        def compare() -> list[Comparison]:
            read_result = client_result(host_result)
            return [UNREADABLE] if read_result is None else compare_with(read_result)

        self._memory.shadows.note(
            call.tenant, session, turn_id, call_name, compare, on_compared=self._counters.turn_compared
        )

    def _session_of(self, call: _TurnCall) -> Session:
        """Return the session of a call, for the principal's own participants and the user that the call names, if any.

        Raises:
            InvalidArgument: the user's name stands for everybody.
            ParticipantsNotAllowed: the principal may not ask as this user.
        """
        principal, request = call.principal, call.request
        own_participants = principal.own or principal.fallback
        user_id = request.user_id if isinstance(request, TurnInput) else None
        asked_participants = None
        if user_id is not None:
            (user,) = canonical_participants([user_id], field="user_id")
            check_not_reserved(user, self._reserved, field="user_id")
            asked_participants = canonical_participants([*own_participants, user_id], field="user_id")
        participants = principal.asking_as(asked_participants, field="user_id")
        return Session(
            own=own_participants or participants,
            participants=participants,
            project=request.project,
            session_id=request.session_id,
        )

    def _check_limits(self, *lists: Sequence[Json]) -> None:
        """Check lists of items against the bounds of the settings.

        Raises:
            InvalidArgument: a list has too many items.
            PayloadTooLarge: a text is too long.
        """
        max_items, max_part_bytes = self._settings.max_items, self._settings.part_bytes
        for items in lists:
            if len(items) > max_items:
                raise InvalidArgument(
                    f"a list holds {len(items)} items; at most {max_items} are taken", limit=max_items
                )
            for item in items:
                for text in (item.get("output", ""), *(part.get("text", "") for part in item.get("content", ()))):
                    if len(text.encode()) > max_part_bytes:
                        raise PayloadTooLarge(
                            f"a text is longer than {max_part_bytes} bytes; shorten it, or send it in parts",
                            limit=max_part_bytes,
                        )


def new_turn_id() -> str:
    """Return a turn_id as the contract makes it for callers that name none."""
    return f"turn-{time.time_ns() // 1_000_000}-{os.urandom(3).hex()}"


def _make_token(call: _TurnCall, session: Session, turn_id: str, current: Sequence[Json], *, secret: bytes) -> str:
    """Return a token that names a prepared turn and holds its items. It gives its holder no rights.

    It is signed, so that a forged one is refused before it is opened: a few kilobytes may unpack to megabytes.
    """
    first_call = {
        "tenant": call.tenant,
        "owner": session.owner.hex(),
        "project": session.project,
        "session_id": session.session_id,
        "turn_id": turn_id,
        "user_id": call.request.user_id,
        "current": list(current),
    }
    return signed_text(zlib.compress(orjson.dumps(first_call), 1), secret, purpose=_TOKEN_PURPOSE)


def _open_token(token: str, tenant: str, *, secret: bytes) -> Json:
    """Return the content of a token, after checking its signature and its tenant.

    Raises:
        InvalidArgument: the token is not one that this server gave the tenant.
    """
    body = signed_body(token, secret, purpose=_TOKEN_PURPOSE, longest=MAX_TOKEN)
    if body is None:
        raise _invalid_token()
    first_call: Json = orjson.loads(zlib.decompressobj().decompress(body, _MAX_OPENED_TOKEN_BYTES))
    if first_call["tenant"] != tenant:
        raise _invalid_token()
    return first_call


def _invalid_token() -> InvalidArgument:
    return InvalidArgument(
        "operation_token is none that this server gave you; send that of the call that began the turn, unchanged",
        field="operation_token",
    )
