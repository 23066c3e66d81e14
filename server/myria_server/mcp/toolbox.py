"""Running one tool call: find the tool, read its arguments, ask the memory within a deadline, name the outcome.

Every transport goes through here, so a call means the same over HTTP and stdio.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from myria.access.journal import Act, Journal, RefusedAttempt
from myria.access.principal import Face, Principal, matches
from myria.db.fairness import caller
from myria.errors import (
    AccessError,
    DeadlineExceeded,
    EventNotFound,
    InternalError,
    MyriaError,
    Overloaded,
    SourceEventKeyTaken,
    ToolNotEnabled,
    UnknownTool,
)
from myria.log.event import each_event, parse_event
from myria.log.limits import limits_of
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.search.steps import in_steps
from myria.settings import Settings
from myria_server.api import memento as agent
from myria_server.api.answers import Answer
from myria_server.api.coercion import coerced
from myria_server.api.core import erasure_handlers as erasing
from myria_server.api.core import inputs
from myria_server.api.memtrace import handlers as rest
from myria_server.api.memtrace.routes import Route
from myria_server.api.results import CallResult
from myria_server.api.tools import PATH_OF, SWITCH_OF, TOOLS, Tool
from myria_server.api.turns import handlers as turns
from myria_server.api.without_read import open_part
from myria_server.mcp import requestlog
from myria_server.mcp.answers import Answers
from myria_server.metrics import ServerMetrics

logger = logging.getLogger(__name__)

_MAX_TARGET = 200

_COPIES_OVER_MCP = 3
"""How many times its bytes an answer takes over MCP at most: as JSON, and as a text in which half may be escapes."""

Json = dict[str, Any]

_Handler = Callable[[Principal, Any], Awaitable[Json | ShownAnswer]]

AddressOf = Callable[[], str]
"""Returns from where a call comes. Asked for the few calls that are written down with it."""


def _act_of(
    tool: Tool, principal: Principal, face: Face, arguments: Any, result: CallResult, *, address: str | None
) -> Act:
    """Return the journal's entry of an administrative tool that ran."""
    answer = orjson.loads(result.body)
    named = arguments if isinstance(arguments, dict) else {}
    fields = (
        (named, "snapshot_id"),
        (named, "to"),
        (named, "erasure_id"),
        (answer, "snapshot_id"),
        (answer, "request_id"),
        (answer, "erasure_id"),
    )
    targets = [value for holder, field in fields if isinstance(value := holder.get(field), str)]
    target = targets[0][:_MAX_TARGET].encode("ascii", "replace").decode().replace("\0", "?") if targets else None
    return Act(
        tenant=principal.tenant,
        actor=principal.actor,
        action=tool.name,
        target=target,
        outcome=result.code,
        face=face,
        address=address,
    )


def _asking_beside(principal: Principal, participants: tuple[str, ...]) -> Masks:
    """Return as whom an append looks up the events that it replaces: as its principal asks, beside whom it names."""
    if principal.own and not principal.may_ask:
        return principal.asking(None)
    known = [
        name
        for name in participants
        if principal.anyone or name in principal.own or any(matches(pattern, name) for pattern in principal.may_ask)
    ]
    return principal.asking(tuple(known))


@contextmanager
def _as_named(named: Sequence[str], event_ids: Sequence[str]) -> Iterator[None]:
    """Let a refusal name an event as the caller did: what a handle stands for is for those who may see it."""
    try:
        yield
    except EventNotFound as error:
        given = dict(zip(event_ids, named, strict=True)).get(error.details["event_id"])
        if given is None or given == error.details["event_id"]:
            raise
        message = error.message.replace(error.details["event_id"], given)
        raise EventNotFound(message, **{**error.details, "event_id": given}) from None


class Toolbox:
    """The tools of one face, over one memory.

    Args:
        journal: where acts, refused attempts and calls are noted.
        answers: of the process; None: of this toolbox alone.
    """

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        metrics: ServerMetrics,
        *,
        face: Face = "core",
        journal: Journal | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.face = face
        self.answers = answers or Answers.within(settings)
        self._journal = journal
        self.memory = memory
        self.metrics = metrics
        self.limits = limits_of(settings)
        self._settings = settings
        self._max_in_flight = settings.mcp.max_in_flight
        # The domain has its own append deadline and knows the commit's outcome; this one is only a safeguard.
        self._append_deadline = settings.mcp.append_deadline_s + 1.0
        self._read_deadline = settings.mcp.request_deadline_s
        self._name_style = settings.mcp.tool_names
        profiles = set(settings.mcp.profiles)
        self.offered = tuple(tool for tool in TOOLS if tool.profile in profiles and face in tool.faces)
        offered = {tool.name for tool in self.offered}
        handlers = {
            **self._handlers(),
            **agent.handlers(memory, settings),
            **turns.handlers(memory, settings, metrics),
            **erasing.handlers(memory, settings),
            **rest.handlers(rest.RestFace(memory, settings)),
        }
        self._runs: dict[str, tuple[Tool, _Handler, float, bool]] = {}
        for tool in TOOLS:
            deadline = self._append_deadline if tool.roles == ("append",) else self._read_deadline
            entry = (tool, handlers[tool.name], deadline, tool.name in offered)
            for name in (tool.name, tool.dotted(), tool.plain()):
                self._runs[name] = entry

    def refusal(self, error: MyriaError) -> CallResult:
        """Return the outcome of a refused call, in the form of this face's contract."""
        content: Json = {"error": error.to_json()}
        status = error.http_status
        if self.face == "agent":
            content = agent.refused(error)
        elif self.face == "turns":
            content = turns.refused(error)
        elif self.face == "rest":
            content, status = rest.refused(error), rest.status_of(error)
        body = orjson.dumps(content, default=str)
        return CallResult(body, is_error=True, code=error.code, status=status)

    def knows(self, name: str) -> bool:
        """Tell whether a tool has this name, in any of its styles, offered here or not."""
        return name in self._runs

    def count(self, name: str, code: str) -> None:
        """Count a call of a known tool that was refused before it ran."""
        tool = self._runs[name][0].name
        self.metrics.request_done(self.face, tool, code, 0.0)
        requestlog.called(None, self.face, tool, None, seconds=0.0, code=code)

    def need(self, name: str, principal: Principal, arguments: Any) -> None:
        """Return when a principal may call a known tool so, or when this face does not offer it.

        Raises:
            RoleRequired: it may not.
        """
        tool, _, _, offered = self._runs[name]
        if offered:
            tool.need(principal, arguments)

    def offered_to(self, principal: Principal) -> tuple[Tool, ...]:
        """Return the tools that a principal may call here."""
        return tuple(tool for tool in self.offered if not principal.roles.isdisjoint(tool.roles))

    def _not_offered(self, name: str, tool: Tool) -> ToolNotEnabled:
        if self.face in tool.faces:
            return ToolNotEnabled(
                f"{name} belongs to the profile {tool.profile}, which this server does not offer; mcp.profiles adds it",
                setting="mcp.profiles",
            )
        where, details = self._offered_at(tool)
        return ToolNotEnabled(f"{name} is offered at {where}", **details)

    def _offered_at(self, tool: Tool) -> tuple[str, dict[str, str]]:
        """Return where a tool of other faces is offered, in words and as data, with the setting where that is off."""
        endpoints = " or ".join(PATH_OF[face] for face in tool.faces)
        off = [SWITCH_OF[face] for face in tool.faces if face in SWITCH_OF and not self._settings.get(SWITCH_OF[face])]
        if len(off) < len(tool.faces):
            return endpoints, {"endpoint": endpoints}
        return f"{endpoints}, which {off[0]} switches on", {"endpoint": endpoints, "setting": off[0]}

    def unknown(self, name: str) -> UnknownTool:
        """Return the refusal of a tool that nobody has: with the nearest one, and where that is another face's."""
        shown, tools = name[:100], {tool.named(self._name_style): tool for tool in TOOLS}
        close = difflib.get_close_matches(shown, list(tools), n=1, cutoff=0.5)
        if not close:
            return UnknownTool(f"Unknown tool: {shown}; tools/list names those of {PATH_OF[self.face]}")
        where, details = "", {"nearest": close[0]}
        if self.face not in tools[close[0]].faces:
            offered_at, more = self._offered_at(tools[close[0]])
            where, details = f", which is offered at {offered_at}", details | more
        return UnknownTool(f"Unknown tool: {shown}; did you mean {close[0]}{where}?", **details)

    async def call(
        self, name: str, arguments: Any, principal: Principal, address_of: AddressOf | None = None
    ) -> CallResult:
        """Run a known tool; every failure becomes an outcome.

        Args:
            address_of: from where the call comes; None for a call without a connection (stdio).
        """
        result = await self._run(name, arguments, principal, address_of)
        tool, _, _, offered = self._runs[name]
        if self._journal is not None and tool.profile == "admin" and offered:
            address = None if address_of is None else address_of()
            await self._journal.act(_act_of(tool, principal, self.face, arguments, result, address=address))
        return result

    async def _run(self, name: str, arguments: Any, principal: Principal, address_of: AddressOf | None) -> CallResult:
        tool, handler, deadline, offered = self._runs[name]

        async def answer() -> Json | ShownAnswer:
            if not offered:
                raise self._not_offered(name, tool)
            tool.need(principal, arguments)
            return await handler(principal, arguments)

        return await self._answered(
            tool.name,
            answer,
            (tool.answer,),
            principal,
            deadline_s=deadline,
            copies=_COPIES_OVER_MCP,
            changes=tool.changes,
            arguments=arguments,
            address_of=address_of,
        )

    async def call_route(
        self,
        route: Route,
        work: Callable[[], Awaitable[Json]],
        principal: Principal,
        arguments: Any,
        address_of: AddressOf | None,
    ) -> CallResult:
        """Run what answers a route; every failure becomes an outcome.

        Args:
            arguments: what the call is noted with.
        """

        async def answer() -> Json:
            principal.need(route.roles, what=route.name)
            return await work()

        deadline = self._append_deadline if route.changes else self._read_deadline
        return await self._answered(
            route.name,
            answer,
            route.answer,
            principal,
            deadline_s=deadline,
            copies=1,
            changes=route.changes,
            arguments=arguments,
            address_of=address_of,
        )

    async def _answered(
        self,
        name: str,
        answer: Callable[[], Awaitable[Json | ShownAnswer]],
        models: Sequence[type[Answer]],
        principal: Principal,
        *,
        deadline_s: float,
        copies: int,
        changes: bool,
        arguments: Any,
        address_of: AddressOf | None,
    ) -> CallResult:
        """Return the outcome of a call, counted, noted, and within its deadline and the bounds of answers.

        Every answer of every face passes here, so here is decided who is shown what is stored: without the role
        `read` an answer is the open part of its models, and its text the same as JSON.

        Args:
            copies: how many times the bytes of its JSON an answer may take on its way.
            changes: it writes; then it is answered however large that is, since it was done.
        """
        metrics = self.metrics
        began = time.perf_counter()
        code = "ok"
        metrics.in_flight += 1
        working_for = caller.set(principal.caller)
        try:
            if metrics.in_flight > self._max_in_flight:
                raise Overloaded(f"{self._max_in_flight} requests are being worked on; slow down and retry")
            async with asyncio.timeout(deadline_s), self.answers.making(principal.caller, name) as made:
                answered = await answer()
                shown = answered if isinstance(answered, ShownAnswer) else ShownAnswer(content=answered)
                if "read" not in principal.roles:
                    shown = ShownAnswer(content=open_part(models, shown.content))
                body = orjson.dumps(shown.content)
                made.size = len(body)
            if not changes:
                self.answers.check(principal.caller, copies * len(body))
            if shown.content.get("degraded"):
                metrics.answered_degraded(name, shown.content.get("degraded_reason"))
            return CallResult(body, text=shown.text, text_for_all=shown.text_for_all)
        except MyriaError as error:
            code = error.code
            if self._journal is not None and isinstance(error, AccessError):
                self._journal.refused(
                    RefusedAttempt(
                        tenant=principal.tenant,
                        actor=principal.actor,
                        action=name,
                        outcome=code,
                        face=self.face,
                        address=None if address_of is None else address_of(),
                    )
                )
            return self.refusal(error)
        except TimeoutError:
            seconds = deadline_s
            late = DeadlineExceeded(f"{name} did not finish within {seconds:g} s; retry", deadline_s=seconds)
            code = late.code
            return self.refusal(late)
        except Exception:
            logger.exception("tool call failed", extra={"action": "tool_failed", "tool": name})
            code = InternalError.code
            return self.refusal(InternalError("an error of this service; its log has the details"))
        finally:
            caller.reset(working_for)
            metrics.in_flight -= 1
            seconds = time.perf_counter() - began
            metrics.request_done(self.face, name, code, seconds)
            requestlog.called(principal.tenant, self.face, name, arguments, seconds=seconds, code=code)
            if self._journal is not None:
                self._journal.call(
                    principal, face=self.face, tool=name, arguments=arguments, seconds=seconds, outcome=code
                )

    def _handlers(self) -> Mapping[str, _Handler]:
        memory, limits = self.memory, self.limits

        async def append_event(principal: Principal, arguments: Any) -> Json:
            supersedes: tuple[str, ...] = ()
            arguments = coerced(inputs.AppendInput, arguments)
            if isinstance(arguments, dict) and "supersedes" in arguments:
                supersedes, arguments = inputs.read_supersedes(arguments)
            event = parse_event({} if arguments is None else arguments, limits, principal=principal)
            if not supersedes:
                results = await memory.log.append_events(principal.tenant, (event,))
                return results[0].to_json()
            event_ids = await memory.event_ids(principal.tenant, supersedes)
            with _as_named(supersedes, event_ids):
                result = await memory.append_superseding(
                    principal.tenant,
                    event,
                    event_ids,
                    may_see=_asking_beside(principal, event.participants).sees,
                    may_append=principal.need_channel,
                )
            return result.to_json()

        async def append_events(principal: Principal, arguments: Any) -> Json:
            arguments = coerced(inputs.EventsInput, arguments)
            events = await in_steps(each_event({} if arguments is None else arguments, limits, principal=principal))
            try:
                results = await memory.log.append_events(principal.tenant, events)
            except SourceEventKeyTaken as error:
                raise error if "index" in error.details else error.at_index(0) from error
            return {"results": [result.to_json() for result in results]}

        async def withdraw_events(principal: Principal, arguments: Any) -> Json:
            request = inputs.read(inputs.WithdrawInput, arguments)
            event_ids = await memory.event_ids(principal.tenant, request.event_ids)
            with _as_named(request.event_ids, event_ids):
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
            event_ids = await memory.event_ids(principal.tenant, request.event_ids)
            with _as_named(request.event_ids, event_ids):
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
            event_ids = await memory.event_ids(principal.tenant, (request.event_id,))
            with _as_named((request.event_id,), event_ids):
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
            return await memory.get_active_snapshot(principal.tenant)

        async def list_snapshots(principal: Principal, arguments: Any) -> Json:
            request = inputs.read(inputs.SnapshotsInput, arguments)
            return await memory.list_snapshots(principal.tenant, limit=request.limit, cursor=request.cursor)

        async def get_snapshot_status(principal: Principal, arguments: Any) -> Json:
            inputs.read(inputs.NothingInput, arguments)
            return await memory.get_snapshot_status(principal.tenant)

        async def trigger_build(principal: Principal, arguments: Any) -> Json:
            request = inputs.read(inputs.TriggerBuildInput, arguments)
            return await memory.trigger_build(
                principal.tenant,
                full=request.full,
                hold=request.hold,
                force=request.force,
                reason=request.reason,
                actor=principal.actor,
            )

        async def publish_snapshot(principal: Principal, arguments: Any) -> Json:
            request = inputs.read(inputs.PublishInput, arguments)
            return await memory.publish_snapshot(
                principal.tenant, request.snapshot_id, actor=principal.actor, reason=request.reason
            )

        async def discard_snapshot(principal: Principal, arguments: Any) -> Json:
            request = inputs.read(inputs.DiscardInput, arguments)
            return await memory.discard_snapshot(
                principal.tenant, request.snapshot_id, actor=principal.actor, reason=request.reason
            )

        async def rollback(principal: Principal, arguments: Any) -> Json:
            request = inputs.read(inputs.RollbackInput, arguments)
            return await memory.rollback(principal.tenant, request.to, actor=principal.actor, reason=request.reason)

        async def resume_builds(principal: Principal, arguments: Any) -> Json:
            inputs.read(inputs.NothingInput, arguments)
            return await memory.resume_builds(principal.tenant)

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
            )
        }
