"""memory-tools' API of turns: what a host calls before and after each turn."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol

import orjson

from myria.access.agents import check_not_reserved, reserved_names
from myria.access.principal import Principal
from myria.errors import InvalidArgument, PayloadTooLarge, ToolNotEnabled, TurnBusy
from myria.log.scopes import canonical_participants
from myria.memory import Memory
from myria.notes.turns.model import Session
from myria.notes.turns.preparing import Before, Prepared
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
from myria.search.signing import signed_body, signed_text
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
_MOST_TOKEN_BYTES = 4 * MAX_TOKEN
"""Bytes of what a token holds, opened. The request that made it was bounded: this holds off mistakes of our own."""


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


def handlers(memory: Memory, settings: Settings, counters: TurnCounters) -> Mapping[str, Handler]:
    """Return what runs each tool of the face, by its name."""
    tools = _TurnTools(memory, settings, counters)
    return {
        "memory_before_turn": tools.before,
        "memory_after_turn": tools.after,
        "memory_run_turn": tools.run,
        "memory_run_maintenance": tools.maintain,
        "memory_list_dir_with_abstract": tools.list_directories,
    }


class _TurnTools:
    def __init__(self, memory: Memory, settings: Settings, counters: TurnCounters) -> None:
        self._memory = memory
        self._counters = counters
        self._settings = settings.turns
        self._reserved = reserved_names(settings.auth, settings.rest)

    async def before(self, principal: Principal, arguments: Any) -> Json:
        """Prepare a turn."""
        mode = await self._mode(principal)
        request = inputs.read(BeforeTurnInput, arguments)
        return _prepared_json(await self._prepare(principal, request, mode))

    async def after(self, principal: Principal, arguments: Any) -> Json:
        """Keep a turn."""
        mode = await self._mode(principal)
        request = inputs.read(AfterTurnInput, arguments)
        self._check(request.conversation_items, request.input_items, request.output_items)
        of_conversation: Sequence[Json] = request.split()[1] if request.conversation_items else ()
        await self._store(
            principal,
            request,
            turn_id=request.turn_id or new_turn_id(),
            given=of_conversation or request.input_items,
            came_out=request.output_items,
            is_current=bool(of_conversation),
            mode=mode,
        )
        return {"ok": True}

    async def run(self, principal: Principal, arguments: Any) -> Json:
        """Prepare a turn, or keep it: the second call names it by what the first one gave."""
        mode = await self._mode(principal)
        request = inputs.read(RunTurnInput, arguments)
        if request.operation_token is None:
            turn_id = request.turn_id or new_turn_id()
            principal.need_channel(self._session(principal, request, request.user_id).channel)
            prepared = await self._prepare(principal, request, mode)
            _, current = self._split(request)
            session = self._session(principal, request, request.user_id)
            secret = await self._memory.retrieval.secret(principal.tenant)
            token = _token(principal.tenant, session, turn_id, request.user_id, current, secret=secret)
            return {**_prepared_json(prepared), "operation_token": token, "turn_id": turn_id}
        secret = await self._memory.retrieval.secret(principal.tenant)
        begun = _begun(request.operation_token, principal.tenant, secret=secret)
        named = TurnInput(
            project=begun["project"],
            session_id=begun["session_id"],
            turn_id=begun["turn_id"],
            user_id=begun["user_id"],
        )
        said: list[Json] = begun["current"]
        session = self._session(principal, named, named.user_id)
        if session.owner.hex() != begun["owner"]:
            raise _no_token()
        self._check(said, request.output_items)
        await self._store(
            principal,
            named,
            turn_id=begun["turn_id"],
            given=said,
            came_out=request.output_items,
            is_current=True,
            mode=mode,
        )
        return {"ok": True, "turn_id": begun["turn_id"]}

    async def maintain(self, principal: Principal, arguments: Any) -> Json:
        """Let what has expired go."""
        await self._mode(principal)
        request = inputs.read(MaintenanceInput, arguments)
        session = self._session(principal, request, None)
        principal.need_channel(session.channel)
        await self._memory.turn_maintenance.run(principal.tenant, session, self._memory.turns)
        return {"ok": True}

    async def list_directories(self, principal: Principal, arguments: Any) -> Json:
        """Show what a session holds as directories."""
        await self._mode(principal)
        request = inputs.read(ListDirInput, arguments)
        found = await self._memory.directories.below(
            principal.tenant,
            self._session(principal, request, None),
            request.path or "",
            depth=request.depth,
            limit=request.limit,
            now=await self._memory.database.now(),
        )
        return {"summaries": found}

    async def _mode(self, principal: Principal) -> TurnsMode:
        """Return whether answers are compared with what hosts compute themselves.

        Raises:
            ToolNotEnabled: turns are not served to this tenant.
        """
        mode = (await self._memory.quotas.of(principal.tenant)).turns
        if mode == "off":
            raise ToolNotEnabled("turns are off for this tenant; an administrator allows them by `myria turns mode`")
        return mode or ("shadow" if self._settings.shadow else "on")

    def _compare(
        self,
        principal: Principal,
        session: Session,
        request: TurnInput,
        turn_id: str,
        *,
        call: Call,
        how: Callable[[ClientResult], list[Comparison]],
    ) -> None:
        """Compare an answer with what the host computed itself, beside the call."""

        def compare() -> list[Comparison]:
            theirs = client_result(request.client_result)
            return [UNREADABLE] if theirs is None else how(theirs)

        self._memory.shadows.note(
            principal.tenant, session, turn_id, call, compare, on_compared=self._counters.turn_compared
        )

    async def _prepare(self, principal: Principal, request: BeforeTurnInput, mode: TurnsMode) -> Prepared:
        self._check(request.conversation_items, request.current_input)
        history, current = self._split(request)
        before = Before(
            session=self._session(principal, request, request.user_id),
            history=history,
            current=current,
            max_input_tok=request.max_input_tok,
        )
        prepared = await self._memory.before_turns.prepare(
            principal.tenant, before, now=await self._memory.database.now()
        )
        if prepared.compacted:
            self._counters.turn_compacted()
        if mode == "shadow" and request.client_result is not None:
            turn_id = request.turn_id or new_turn_id()
            how = partial(compare_before, prepared)
            self._compare(principal, before.session, request, turn_id, call="before", how=how)
        return prepared

    def _split(self, request: BeforeTurnInput) -> tuple[list[Json], list[Json]]:
        """Return what came before a turn, and what is said now."""
        current = list(request.current_input)
        if not current and request.current_input_text:
            current = list(BeforeTurnInput(current_input=request.current_input_text).current_input)  # type: ignore[arg-type]
        if not request.conversation_items:
            if not current:
                raise InvalidArgument(
                    "current_input is required when conversation_items is empty", field="current_input"
                )
            return [], current
        if current and request.current_input_start is None and request.current_input_count is None:
            return list(request.conversation_items), current
        history, of_conversation = request.split()
        if not current and not of_conversation:
            raise InvalidArgument(
                "current_input is required: current_input_start lies behind all of conversation_items",
                field="current_input_start",
            )
        return history, current or of_conversation

    async def _store(
        self,
        principal: Principal,
        request: TurnInput,
        *,
        turn_id: str,
        given: Sequence[Json],
        came_out: Sequence[Json],
        is_current: bool,
        mode: TurnsMode,
    ) -> None:
        session = self._session(principal, request, request.user_id)
        principal.need_channel(session.channel)
        turn = FinishedTurn(
            session=session,
            turn_id=turn_id,
            given=given,
            came_out=came_out,
            user_id=request.user_id,
            is_current=is_current,
        )
        try:
            stored = await self._memory.turns.store(principal.tenant, turn)
        except TurnBusy as busy:
            if busy.details.get("under_way"):
                self._counters.turn_conflicted("under_way")
            raise
        self._counters.turn_stored(stored.facts)
        if not stored.is_new:
            self._counters.turn_conflicted("stored")
        elif mode == "shadow" and request.client_result is not None:
            how = partial(compare_after, stored.found, stored.given)
            self._compare(principal, session, request, turn_id, call="after", how=how)

    def _session(self, principal: Principal, request: SessionInput, user_id: str | None) -> Session:
        """Return the session of a call: of the principal's own participants, and the user where one is named.

        Raises:
            InvalidArgument: the user's name stands for everybody.
            ParticipantsNotAllowed: the principal may not ask as this user.
        """
        own = principal.own or principal.fallback
        if user_id is not None:
            (user,) = canonical_participants([user_id], field="user_id")
            check_not_reserved(user, self._reserved, field="user_id")
        named = None if user_id is None else canonical_participants([*own, user_id], field="user_id")
        participants = principal.asking_as(named, field="user_id")
        return Session(
            own=own or participants,
            participants=participants,
            project=request.project,
            session_id=request.session_id,
        )

    def _check(self, *lists: Sequence[Json]) -> None:
        """Refuse what is more than the settings allow.

        Raises:
            InvalidArgument: too many items.
            PayloadTooLarge: a text that is too long.
        """
        most, longest = self._settings.max_items, self._settings.part_bytes
        for items in lists:
            if len(items) > most:
                raise InvalidArgument(f"a list holds {len(items)} items; at most {most} are taken", limit=most)
            for item in items:
                for text in (item.get("output", ""), *(part.get("text", "") for part in item.get("content", ()))):
                    if len(text) * 4 > longest and len(text.encode()) > longest:
                        raise PayloadTooLarge(
                            f"a text is longer than {longest} bytes; shorten it, or send it in parts", limit=longest
                        )


def new_turn_id() -> str:
    """Return a turn_id as the contract makes it for callers that name none."""
    return f"turn-{time.time_ns() // 1_000_000}-{os.urandom(3).hex()}"


def _prepared_json(prepared: Prepared) -> Json:
    return {
        "input_items": list(prepared.items),
        "recall_fact_ids": list(prepared.fact_ids),
        "recall_insight_ids": list(prepared.insight_ids),
        "context_token_count": prepared.tokens,
    }


def _token(
    tenant: str, session: Session, turn_id: str, user_id: str | None, current: Sequence[Json], *, secret: bytes
) -> str:
    """Return what names a turn that has begun, and what went into it. It permits nothing that its holder may not do.

    It is signed, so that no work is done for one that somebody else made: a few kilobytes may open to megabytes.
    """
    begun = {
        "tenant": tenant,
        "owner": session.owner.hex(),
        "project": session.project,
        "session_id": session.session_id,
        "turn_id": turn_id,
        "user_id": user_id,
        "current": list(current),
    }
    return signed_text(zlib.compress(orjson.dumps(begun), 1), secret, purpose=_TOKEN_PURPOSE)


def _begun(token: str, tenant: str, *, secret: bytes) -> Json:
    body = signed_body(token, secret, purpose=_TOKEN_PURPOSE, longest=MAX_TOKEN)
    if body is None:
        raise _no_token()
    begun: Json = orjson.loads(zlib.decompressobj().decompress(body, _MOST_TOKEN_BYTES))
    if begun["tenant"] != tenant:
        raise _no_token()
    return begun


def _no_token() -> InvalidArgument:
    return InvalidArgument(
        "operation_token is none that this server gave you; send that of the call that began the turn, unchanged",
        field="operation_token",
    )
