"""memory-tools' API of turns: what a host calls before and after each turn."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import orjson

from myria.access.agents import check_not_reserved, reserved_names
from myria.access.principal import Principal
from myria.errors import InvalidArgument, PayloadTooLarge, ToolNotEnabled, TurnBusy
from myria.log.scopes import canonical_participants
from myria.memory import Memory
from myria.notes.turns.directory import directories_below
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
from myria_server.api.api_call import ApiCall, Handler, Json, Runner
from myria_server.api.turns.schemas import (
    MAX_TOKEN,
    AfterTurnInput,
    BeforeTurnInput,
    ListDirInput,
    RunTurnInput,
    SessionInput,
    TurnInput,
    client_result,
    refused,
)

__all__ = ["refused", "runner"]

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
class TurnCall(ApiCall):
    """A call of a tool.

    `mode` says whether answers are compared with what hosts compute themselves; nobody may have a name in `reserved`.
    """

    counters: TurnCounters
    mode: TurnsMode
    reserved: frozenset[str]


def runner(memory: Memory, settings: Settings, counters: TurnCounters) -> Runner:
    """Return what runs the tools of this API."""
    reserved = reserved_names(settings.auth, settings.rest)

    async def run(handler: Handler, principal: Principal, request: SessionInput, *, changes: bool) -> Json:
        """Run a tool.

        Raises:
            ToolNotEnabled: turns are not served to this tenant.
        """
        mode = (await memory.quotas.of(principal.tenant)).turns
        if mode == "off":
            raise ToolNotEnabled("turns are off for this tenant; an administrator allows them by `myria turns mode`")
        mode = mode or ("shadow" if settings.turns.shadow else "on")
        call = TurnCall(
            memory=memory, settings=settings, principal=principal, counters=counters, mode=mode, reserved=reserved
        )
        answer: Json = await handler(call, request)
        return answer

    return run


async def memory_before_turn(call: TurnCall, request: BeforeTurnInput) -> Json:
    """What to put into the prompt before a turn: recalled memory, earlier items, what is said now."""
    _check_limits(call, request.conversation_items, request.current_input)
    history, current = request.parts()
    session = _session_of(call, request)
    before = Before(session=session, history=history, current=current, max_input_tok=request.max_input_tok)
    now = await call.memory.database.now()
    prepared = await call.memory.before_turns.prepare(call.tenant, before, now=now)
    if prepared.compacted:
        call.counters.turn_compacted()
    turn_id = request.turn_id or new_turn_id()
    compare_with = partial(compare_before, prepared)
    _compare(call, session, turn_id, request.client_result, call_name="before", compare_with=compare_with)
    return {
        "input_items": list(prepared.items),
        "recall_fact_ids": list(prepared.fact_ids),
        "recall_insight_ids": list(prepared.insight_ids),
        "context_token_count": prepared.tokens,
    }


async def memory_after_turn(call: TurnCall, request: AfterTurnInput) -> Json:
    """Keep what went in and came out of a turn, once: a repeat of its turn_id changes nothing."""
    _check_limits(call, request.conversation_items, request.input_items, request.output_items)
    current_items: Sequence[Json] = request.split()[1] if request.conversation_items else ()
    turn = FinishedTurn(
        session=_session_of(call, request),
        turn_id=request.turn_id or new_turn_id(),
        given=current_items or request.input_items,
        came_out=request.output_items,
        user_id=request.user_id,
        is_current=bool(current_items),
    )
    await _store(call, turn, request.client_result)
    return {"ok": True}


async def memory_run_turn(call: TurnCall, request: RunTurnInput) -> Json:
    """Both in one tool: first it prepares a turn and gives an operation_token; called again with that and output_items,
    it keeps the turn.
    """
    secret = await call.memory.retrieval.secret(call.tenant)
    if request.operation_token is None:
        turn_id = request.turn_id or new_turn_id()
        session = _session_of(call, request)
        call.principal.need_channel(session.channel)
        prepared = await memory_before_turn(call, request.model_copy(update={"turn_id": turn_id}))
        token = _make_token(call, request, session, turn_id, secret=secret)
        return {**prepared, "operation_token": token, "turn_id": turn_id}
    first_call = _open_token(request.operation_token, call.tenant, secret=secret)
    names = ("project", "session_id", "turn_id", "user_id")
    session = _session_of(call, TurnInput(**{name: first_call[name] for name in names}))
    if session.owner.hex() != first_call["owner"]:
        raise _invalid_token()
    _check_limits(call, first_call["current"], request.output_items)
    turn = FinishedTurn(
        session=session,
        turn_id=first_call["turn_id"],
        given=first_call["current"],
        came_out=request.output_items,
        user_id=first_call["user_id"],
        is_current=True,
    )
    await _store(call, turn, None)
    return {"ok": True, "turn_id": first_call["turn_id"]}


async def memory_run_maintenance(call: TurnCall, request: SessionInput) -> Json:
    """Let what has expired go. It happens by itself too."""
    session = _session_of(call, request)
    call.principal.need_channel(session.channel)
    await call.memory.turn_maintenance.run(call.tenant, session, call.memory.turns)
    return {"ok": True}


async def memory_list_dir_with_abstract(call: TurnCall, request: ListDirInput) -> Json:
    """The session's memory as directories, each with what is in it."""
    summaries = await directories_below(
        call.memory.retrieval.read,
        call.tenant,
        _session_of(call, request),
        request.path or "",
        depth=request.depth,
        limit=request.limit,
        now=await call.memory.database.now(),
    )
    return {"summaries": summaries}


async def _store(call: TurnCall, turn: FinishedTurn, host_result: Any) -> None:
    """Store a turn and count its facts, or count that it was stored, or is being stored, already."""
    call.principal.need_channel(turn.session.channel)
    try:
        stored = await call.memory.turns.store(call.tenant, turn)
    except TurnBusy as busy:
        if busy.details.get("under_way"):
            call.counters.turn_conflicted("under_way")
        raise
    call.counters.turn_stored(stored.facts)
    if stored.is_new:
        compare_with = partial(compare_after, stored.found, stored.given)
        _compare(call, turn.session, turn.turn_id, host_result, call_name="after", compare_with=compare_with)
    else:
        call.counters.turn_conflicted("stored")


def _compare(
    call: TurnCall,
    session: Session,
    turn_id: str,
    host_result: Any,
    *,
    call_name: Call,
    compare_with: Callable[[ClientResult], list[Comparison]],
) -> None:
    """In shadow mode, compare an answer with the host's own result, in the background."""
    if call.mode != "shadow" or host_result is None:
        return

    def compare() -> list[Comparison]:
        read_result = client_result(host_result)
        return [UNREADABLE] if read_result is None else compare_with(read_result)

    call.memory.shadows.note(call.tenant, session, turn_id, call_name, compare, on_compared=call.counters.turn_compared)


def _session_of(call: TurnCall, request: SessionInput) -> Session:
    """Return the session of a call, for the principal's own participants and the user that the call names, if any.

    Raises:
        InvalidArgument: the user's name stands for everybody.
        ParticipantsNotAllowed: the principal may not ask as this user.
    """
    principal = call.principal
    own_participants = principal.own or principal.fallback
    user_id = request.user_id if isinstance(request, TurnInput) else None
    asked_participants = None
    if user_id is not None:
        (user,) = canonical_participants([user_id], field="user_id")
        check_not_reserved(user, call.reserved, field="user_id")
        asked_participants = canonical_participants([*own_participants, user_id], field="user_id")
    participants = principal.asking_as(asked_participants, field="user_id")
    return Session(
        own=own_participants or participants,
        participants=participants,
        project=request.project,
        session_id=request.session_id,
    )


def _check_limits(call: TurnCall, *lists: Sequence[Json]) -> None:
    """Check lists of items against the bounds of the settings.

    Raises:
        InvalidArgument: a list has too many items.
        PayloadTooLarge: a text is too long.
    """
    max_items, max_part_bytes = call.settings.turns.max_items, call.settings.turns.part_bytes
    for items in lists:
        if len(items) > max_items:
            raise InvalidArgument(f"a list holds {len(items)} items; at most {max_items} are taken", limit=max_items)
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


def _make_token(call: TurnCall, request: RunTurnInput, session: Session, turn_id: str, *, secret: bytes) -> str:
    """Return a token that names a prepared turn and holds its items. It gives its holder no rights.

    It is signed, so that a forged one is refused before it is opened: a few kilobytes may unpack to megabytes.
    """
    first_call = {
        "tenant": call.tenant,
        "owner": session.owner.hex(),
        "project": session.project,
        "session_id": session.session_id,
        "turn_id": turn_id,
        "user_id": request.user_id,
        "current": list(request.parts()[1]),
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
