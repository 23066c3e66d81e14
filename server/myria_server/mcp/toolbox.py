"""Running one tool call: find the tool, read its arguments, ask the memory within a deadline, name the outcome.

Every transport goes through here, so a call means the same over HTTP and stdio.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from myria.access.journal import Act, Journal
from myria.access.principal import ApiName, Principal
from myria.db.fairness import caller
from myria.errors import (
    AccessError,
    DeadlineExceeded,
    InternalError,
    MyriaError,
    Overloaded,
    ToolNotEnabled,
    UnknownTool,
)
from myria.memory import Memory
from myria.notes.answertext import ShownAnswer
from myria.settings import Settings
from myria_server.api.answers import Answer
from myria_server.api.api_call import CallResult, Json
from myria_server.api.core.inputs import read
from myria_server.api.memtrace.routing import Route
from myria_server.api.tools import TOOLS, Tool, refusal_of, runner_of
from myria_server.api.without_read import open_part
from myria_server.mcp import requestlog
from myria_server.mcp.answers import Answers
from myria_server.metrics import ServerMetrics
from myria_server.paths import PATH_OF, SWITCH_OF

logger = logging.getLogger(__name__)

_COPIES_OVER_MCP = 3
"""How many times its bytes an answer takes over MCP at most: as JSON, and as a text in which half may be escapes."""

AddressOf = Callable[[], str]
"""Returns the address of a caller; called only for the few calls that are recorded with it."""


class Toolbox:
    """The tools of one API, over one memory.

    Args:
        journal: where acts, refused attempts and calls are noted.
        answers: bounds the answers of the whole process; None: bounds those of this toolbox alone.
        is_use: whether a note that is found counts as used; looking at a memory is no use of it.
    """

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        metrics: ServerMetrics,
        *,
        api: ApiName = "core",
        journal: Journal | None = None,
        answers: Answers | None = None,
        is_use: bool = True,
    ) -> None:
        self.api = api
        self.answers = answers or Answers.within(settings)
        self._journal = journal
        self.metrics = metrics
        self._settings = settings
        self._max_in_flight = settings.mcp.max_in_flight
        # The domain has its own append deadline and knows the commit's outcome: this later one is a safeguard.
        self._append_deadline = settings.mcp.append_deadline_s + 1.0
        self._read_deadline = settings.mcp.request_deadline_s
        self._name_style = settings.mcp.tool_names
        self._zone = settings.service.zone
        profiles = set(settings.mcp.profiles)
        self.offered = tuple(tool for tool in TOOLS if tool.profile in profiles and api in tool.apis)
        self._run = runner_of(api, memory, settings, metrics, is_use=is_use)
        self._tools = {name: tool for tool in TOOLS for name in (tool.name, tool.dotted(), tool.plain())}
        """All tools by every name of theirs, offered here or not."""

    def refusal(self, error: MyriaError) -> CallResult:
        """Return the outcome of a refused call, in the form of this API's contract."""
        content, status = refusal_of(self.api, error)
        body = orjson.dumps(content, default=str)
        return CallResult(body, is_error=True, code=error.code, status=status)

    def knows(self, name: str) -> bool:
        """Tell whether a tool has this name, in any of its styles, offered here or not."""
        return name in self._tools

    def count(self, name: str, code: str) -> None:
        """Count a call of a known tool that was refused before it ran."""
        tool = self._tools[name].name
        self.metrics.request_done(self.api, tool, code, 0.0)
        requestlog.called(None, self.api, tool, None, seconds=0.0, code=code)

    def need(self, name: str, principal: Principal, arguments: Any) -> None:
        """Check that a principal may call a known tool with these arguments; a tool not offered here passes, too.

        Raises:
            RoleRequired: the principal lacks the role.
        """
        tool = self._tools[name]
        if tool in self.offered:
            tool.need(principal, arguments)

    def offered_to(self, principal: Principal) -> tuple[Tool, ...]:
        """Return the tools that a principal may call here."""
        return tuple(tool for tool in self.offered if not principal.roles.isdisjoint(tool.roles))

    def _not_offered(self, name: str, tool: Tool) -> ToolNotEnabled:
        if self.api in tool.apis:
            return ToolNotEnabled(
                f"{name} belongs to the profile {tool.profile}, which this server does not offer; mcp.profiles adds it",
                setting="mcp.profiles",
            )
        where, details = self._offered_at(tool)
        return ToolNotEnabled(f"{name} is offered at {where}", **details)

    def _offered_at(self, tool: Tool) -> tuple[str, dict[str, str]]:
        """Return where other APIs offer a tool, as text and as details; if all are off, with the setting to change."""
        endpoints = " or ".join(PATH_OF[api] for api in tool.apis)
        off_switches = [
            SWITCH_OF[api] for api in tool.apis if api in SWITCH_OF and not self._settings.get(SWITCH_OF[api])
        ]
        if len(off_switches) < len(tool.apis):
            return endpoints, {"endpoint": endpoints}
        return f"{endpoints}, which {off_switches[0]} switches on", {"endpoint": endpoints, "setting": off_switches[0]}

    def unknown(self, name: str) -> UnknownTool:
        """Return the refusal of an unknown name, with the nearest tool, and its endpoint if another API has it."""
        shown_name, tools = name[:100], {tool.named(self._name_style): tool for tool in TOOLS}
        nearest = difflib.get_close_matches(shown_name, list(tools), n=1, cutoff=0.5)
        if not nearest:
            return UnknownTool(f"Unknown tool: {shown_name}; tools/list names those of {PATH_OF[self.api]}")
        where, details = "", {"nearest": nearest[0]}
        if self.api not in tools[nearest[0]].apis:
            offered_at, place_details = self._offered_at(tools[nearest[0]])
            where, details = f", which is offered at {offered_at}", details | place_details
        return UnknownTool(f"Unknown tool: {shown_name}; did you mean {nearest[0]}{where}?", **details)

    async def call(
        self, name: str, arguments: Any, principal: Principal, address_of: AddressOf | None = None
    ) -> CallResult:
        """Run a known tool; every failure becomes an outcome.

        Args:
            address_of: returns the caller's address; None for a call without a connection (stdio).
        """
        result = await self._run_tool(name, arguments, principal, address_of)
        tool = self._tools[name]
        if self._journal is not None and tool.profile == "admin" and tool in self.offered:
            act = Act(
                tenant=principal.tenant,
                actor=principal.actor,
                action=tool.name,
                outcome=result.code,
                face=self.api,
                address=None if address_of is None else address_of(),
            )
            named = arguments if isinstance(arguments, dict) else {}
            await self._journal.command(act, named, orjson.loads(result.body))
        return result

    async def _run_tool(
        self, name: str, arguments: Any, principal: Principal, address_of: AddressOf | None
    ) -> CallResult:
        tool = self._tools[name]

        async def answer() -> Json | ShownAnswer:
            if tool not in self.offered:
                raise self._not_offered(name, tool)
            tool.need(principal, arguments)
            request = arguments if tool.reads_arguments else read(tool.arguments, arguments, self._zone)
            return await self._run(tool.handler, principal, request, changes=tool.changes)

        return await self._run_bounded(
            tool,
            answer,
            principal,
            models=(tool.answer,),
            copies=_COPIES_OVER_MCP,
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
        """Run `work`, which answers a route of REST; every failure becomes an outcome.

        Args:
            arguments: recorded with the call in log and journal.
        """

        async def answer() -> Json:
            principal.need(route.roles, what=route.name)
            return await work()

        return await self._run_bounded(
            route, answer, principal, models=route.answer, copies=1, arguments=arguments, address_of=address_of
        )

    async def _run_bounded(
        self,
        called: Tool | Route,
        answer: Callable[[], Awaitable[Json | ShownAnswer]],
        principal: Principal,
        *,
        models: Sequence[type[Answer]],
        copies: int,
        arguments: Any,
        address_of: AddressOf | None,
    ) -> CallResult:
        """Run `answer` within the deadline and the bounds of answers; count, log and journal it; return the outcome.

        Every answer of every API passes here, so the role `read` is enforced here: without it a caller gets only the
        open fields of the answer's models, and as text the same JSON.

        Args:
            answer: runs the call and returns its answer.
            models: the models that the answer may have.
            copies: how many times its JSON's bytes the answer takes at most when it is sent.
        """
        name, metrics = called.name, self.metrics
        deadline_s = self._append_deadline if called.roles == ("append",) else self._read_deadline
        began = time.perf_counter()
        code = "ok"
        metrics.in_flight += 1
        caller_token = caller.set(principal.caller)
        try:
            if metrics.in_flight > self._max_in_flight:
                raise Overloaded(f"{self._max_in_flight} requests are being worked on; slow down and retry")
            async with asyncio.timeout(deadline_s), self.answers.slot_for(principal.caller, name) as outgoing:
                content = await answer()
                shown_answer = content if isinstance(content, ShownAnswer) else ShownAnswer(content=content)
                if "read" not in principal.roles:
                    shown_answer = ShownAnswer(content=open_part(models, shown_answer.content))
                body = orjson.dumps(shown_answer.content)
                outgoing.size = len(body)
            if not called.changes:  # what has changed something is answered however large that is
                self.answers.check(principal.caller, copies * len(body))
            if shown_answer.content.get("degraded"):
                metrics.answered_degraded(name, shown_answer.content.get("degraded_reason"))
            return CallResult(body, text=shown_answer.text, text_for_all=shown_answer.text_for_all)
        except MyriaError as error:
            code = error.code
            if self._journal is not None and isinstance(error, AccessError):
                self._journal.refused(
                    Act(
                        tenant=principal.tenant,
                        actor=principal.actor,
                        action=name,
                        outcome=code,
                        face=self.api,
                        address=None if address_of is None else address_of(),
                    )
                )
            return self.refusal(error)
        except TimeoutError:
            timed_out = DeadlineExceeded(f"{name} did not finish within {deadline_s:g} s; retry", deadline_s=deadline_s)
            code = timed_out.code
            return self.refusal(timed_out)
        except Exception:
            logger.exception("tool call failed", extra={"action": "tool_failed", "tool": name})
            code = InternalError.code
            return self.refusal(InternalError("an error of this service; its log has the details"))
        finally:
            caller.reset(caller_token)
            metrics.in_flight -= 1
            took = time.perf_counter() - began
            metrics.request_done(self.api, name, code, took)
            requestlog.called(principal.tenant, self.api, name, arguments, seconds=took, code=code)
            if self._journal is not None:
                self._journal.call(principal, face=self.api, tool=name, arguments=arguments, seconds=took, outcome=code)
