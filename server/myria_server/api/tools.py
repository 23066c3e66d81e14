"""The catalogue of tools: names, profiles, hints, the JSON Schemas they publish, and what runs those of each API."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

from myria.access.principal import ApiName, Principal, Role
from myria.errors import MyriaError
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import NameStyle, Profile, Settings
from myria_server.api import answers
from myria_server.api.api_call import ApiCall, Handler, Json, Runner
from myria_server.api.core import erasing, inputs, reviewing
from myria_server.api.core import handlers as core
from myria_server.api.memento import answer_schemas as agent_answers
from myria_server.api.memento import calls as agent_calls
from myria_server.api.memento import insight, notes, recalling, sessions
from myria_server.api.memtrace import answer_schemas as rest
from myria_server.api.memtrace import tools as memtrace
from myria_server.api.schemas import published_schema, schema_of_any
from myria_server.api.turns import handlers as turns
from myria_server.api.turns import schemas as turn_schemas
from myria_server.api.without_read import open_model
from myria_server.paths import PATH_OF

PREFIX = "myria"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """One tool.

    `name` is without prefix; `description` may have the field `{batch_events}` (see the function `description`).
    `handler` answers it; where it `reads_arguments` itself, it gets them as they were sent, and else as their model.
    `changes` tells whether it writes; `replaces`, whether it replaces or removes what somebody may want, so that a
    host asks a person first; `repeatable`, whether repeating it with the same arguments changes nothing more.
    `apis` are the APIs that offer it. `arguments`, `answer` and `refusal` are its models, `lean` that of its
    answer in the lean view, where it has one. A tool of the agent's API has its name alone, without prefix. `role` is
    the one that a caller needs where its profile does not say. `finds_by` are arguments that make it search what is
    remembered before it writes: how much they find tells what is stored, so a caller needs `read` beside.
    """

    name: str
    title: str
    description: str
    handler: Handler
    arguments: type[inputs.Input]
    answer: type[answers.Answer]
    profile: Profile = "core"
    lean: type[answers.Answer] | None = None
    apis: tuple[ApiName, ...] = ("core",)
    changes: bool = False
    replaces: bool = False
    repeatable: bool = True
    refusal: type[answers.Answer] = answers.Refusal
    role: Role | None = None
    finds_by: tuple[str, ...] = ()
    reads_arguments: bool = False

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a caller needs one."""
        if self.role is not None:
            return (self.role,)
        if self.profile == "admin":
            return ("admin",)
        if "admin" in self.apis:
            return ("read", "admin")
        return ("append",) if self.changes else ("read",)

    def need(self, principal: Principal, arguments: Any = None) -> None:
        """Check that a principal may call this tool, with these arguments where there are any.

        Raises:
            RoleRequired: the principal lacks the role.
        """
        principal.need(self.roles, what=self.plain())
        if isinstance(arguments, dict):
            for name in self.finds_by:
                if arguments.get(name):
                    principal.need(("read",), what=f"{self.plain()} by {name}")

    @property
    def has_own_name(self) -> bool:
        """Whether it is called as another system's contract calls it, without prefix."""
        return not {"agent", "turns", "rest"}.isdisjoint(self.apis)

    def dotted(self) -> str:
        """Return the name as the design writes it, `myria.append_event`."""
        return self.name if self.has_own_name else f"{PREFIX}.{self.name}"

    def plain(self) -> str:
        """Return the name that every host takes, `myria_append_event`."""
        return self.name if self.has_own_name else f"{PREFIX}_{self.name}"

    def named(self, style: NameStyle) -> str:
        """Return the name in a style: plain or dotted."""
        return self.plain() if style == "plain" else self.dotted()


def _tool(handler: Handler, *, arguments: type[inputs.Input] | None = None, **more: Any) -> Tool:
    """Return the tool that a function answers: it has its name, its docstring, and the model of its `request`.

    Args:
        arguments: the model of the arguments, where the function reads them itself.
    """
    return Tool(
        name=handler.__name__,
        description=" ".join((handler.__doc__ or "").split()),
        handler=handler,
        arguments=arguments or get_type_hints(handler)["request"],
        reads_arguments=arguments is not None,
        **more,
    )


_status_tool = partial(_tool, profile="observe", apis=("core", "admin"))
_agent_tool = partial(_tool, refusal=agent_answers.AgentRefusal, apis=("agent",))
_turns_tool = partial(_tool, refusal=turn_schemas.TurnRefusal, apis=("turns",))
_rest_tool = partial(_tool, refusal=rest.RestRefusal, apis=("rest",))
_admin_tool = partial(_tool, profile="admin", apis=("admin",))
_erasing_tool = partial(_admin_tool, role="erase")

TOOLS: tuple[Tool, ...] = (
    _tool(
        core.append_event,
        title="Remember one event",
        arguments=inputs.AppendInput,
        answer=answers.Appended,
        changes=True,
        repeatable=False,
    ),
    _tool(
        core.append_events,
        title="Remember several events",
        arguments=inputs.EventsInput,
        answer=answers.AppendedBatch,
        changes=True,
        repeatable=False,
    ),
    _tool(core.withdraw_events, title="Forget events", answer=answers.Withdrawn, changes=True, replaces=True),
    _tool(core.restore_events, title="Restore events", answer=answers.Withdrawn, changes=True),
    _tool(core.query_event_nodes, title="Find events", answer=answers.Tree, lean=answers.LeanTree),
    _tool(core.query_references, title="Find topics and references", answer=answers.Tree, lean=answers.LeanTree),
    _tool(core.get_event, title="Look up one event", answer=answers.EventAnswer, profile="observe"),
    _tool(core.get_topic, title="Look up one topic", answer=answers.TopicAnswer, profile="observe"),
    _status_tool(core.get_active_snapshot, title="Show the active snapshot", answer=answers.ActiveSnapshot),
    _status_tool(core.list_snapshots, title="List snapshots", answer=answers.Snapshots),
    _status_tool(core.get_snapshot_status, title="Show build status", answer=answers.Status),
    _agent_tool(notes.remember, title="Remember", answer=agent_answers.RememberAnswer, changes=True),
    _agent_tool(notes.batch_remember, title="Remember several", answer=agent_answers.BatchRememberAnswer, changes=True),
    _agent_tool(recalling.recall, title="Recall", answer=agent_answers.RecallAnswer),
    _agent_tool(
        notes.forget,
        title="Forget",
        answer=agent_answers.ForgetAnswer,
        changes=True,
        replaces=True,
        finds_by=("topic", "text"),
    ),
    _agent_tool(notes.restore, title="Restore", answer=agent_answers.RestoreAnswer, changes=True),
    _agent_tool(notes.amend, title="Amend", answer=agent_answers.AmendAnswer, changes=True),
    _agent_tool(sessions.context, title="Begin a session", answer=agent_answers.ContextAnswer),
    _agent_tool(sessions.reflect, title="End a session", answer=agent_answers.ReflectAnswer, changes=True),
    _agent_tool(sessions.memory_consolidate, title="Consolidate", answer=agent_answers.ConsolidateAnswer, changes=True),
    _agent_tool(notes.link, title="Link", answer=agent_answers.LinkAnswer, changes=True),
    _agent_tool(insight.graph_explore, title="Explore causes", answer=agent_answers.GraphExploreAnswer),
    _agent_tool(insight.fragment_history, title="Show a note's history", answer=agent_answers.HistoryAnswer),
    _agent_tool(insight.memory_stats, title="Count notes", answer=agent_answers.StatsAnswer),
    _agent_tool(
        insight.tool_feedback,
        title="Say how an answer was",
        answer=agent_answers.FeedbackAnswer,
        changes=True,
        repeatable=False,
    ),
    _turns_tool(turns.memory_before_turn, title="Prepare a turn", answer=turn_schemas.PreparedAnswer),
    _turns_tool(turns.memory_after_turn, title="Keep a turn", answer=turn_schemas.DoneAnswer, changes=True),
    _turns_tool(turns.memory_run_turn, title="Run a turn", answer=turn_schemas.RunTurnAnswer, changes=True),
    _turns_tool(turns.memory_run_maintenance, title="Maintain a session", answer=turn_schemas.DoneAnswer, changes=True),
    _turns_tool(
        turns.memory_list_dir_with_abstract, title="Show what a session holds", answer=turn_schemas.ListDirAnswer
    ),
    _rest_tool(
        memtrace.memtrace_remember, title="Keep a memory", answer=rest.MemoryBody, changes=True, repeatable=False
    ),
    _rest_tool(memtrace.memtrace_recall, title="Recall an agent's memories", answer=rest.MemoryListBody),
    _rest_tool(memtrace.memtrace_search, title="Search memories", answer=rest.SearchBody),
    _rest_tool(
        memtrace.memtrace_decide, title="Keep a decision", answer=rest.MemoryBody, changes=True, repeatable=False
    ),
    _rest_tool(
        memtrace.memtrace_session_create,
        title="Open a session",
        answer=rest.SessionBody,
        changes=True,
        repeatable=False,
    ),
    _rest_tool(memtrace.memtrace_session_context, title="Read a session's context", answer=rest.ContextBody),
    _rest_tool(
        memtrace.memtrace_agent_register,
        title="Register an agent",
        answer=rest.AgentBody,
        changes=True,
        repeatable=False,
    ),
    _admin_tool(
        core.trigger_build, title="Start a rebuild", answer=answers.BuildRequested, changes=True, repeatable=False
    ),
    _admin_tool(core.abort_build, title="Give up a build", answer=answers.GivenUp, changes=True, replaces=True),
    _admin_tool(
        core.publish_snapshot, title="Publish a held snapshot", answer=answers.PointerMoved, changes=True, replaces=True
    ),
    _admin_tool(
        core.discard_snapshot, title="Give up a held snapshot", answer=answers.Discarded, changes=True, replaces=True
    ),
    _admin_tool(
        core.rollback, title="Roll back", answer=answers.PointerMoved, changes=True, replaces=True, repeatable=False
    ),
    _admin_tool(core.resume_builds, title="Resume automatic rebuilds", answer=answers.Resumed, changes=True),
    _admin_tool(
        core.list_held_notes,
        title="List notes under review",
        answer=reviewing.HeldNotes,
        profile="observe",
        role="admin",
    ),
    _admin_tool(
        core.decide_notes, title="Decide about held notes", answer=reviewing.DecidedNotes, changes=True, replaces=True
    ),
    _erasing_tool(core.preview_erasure, title="Say what would be erased", answer=erasing.ErasurePreview),
    _erasing_tool(
        core.erase, title="Erase for good", answer=erasing.ErasureState, changes=True, replaces=True, repeatable=False
    ),
    _erasing_tool(core.get_erasures, title="Show erasures", answer=erasing.ErasureStates, profile="observe"),
    _erasing_tool(
        core.get_erasure_receipt, title="Fetch a receipt", answer=erasing.ErasureReceipt, changes=True, repeatable=False
    ),
)
"""In the order in which `tools/list` shows them."""


def path_of(name: str) -> str:
    """Return the path of the first API that offers a tool, by the tool's name without prefix."""
    return next(PATH_OF[tool.apis[0]] for tool in TOOLS if tool.name == name)


def description(tool: Tool, limits: Limits) -> str:
    """Return what a tool is for, with the limits that are set."""
    return tool.description.format(batch_events=limits.batch_events)


def input_schema(tool: Tool, limits: Limits) -> Json:
    """Return the JSON Schema of a tool's arguments: closed, without references, null left out, with the limits set."""
    schema = published_schema(tool.arguments)
    if tool.arguments is inputs.AppendInput:
        _limit_event(schema["properties"], limits)
    if tool.arguments is inputs.EventsInput:
        events = schema["properties"]["events"]
        events["maxItems"] = limits.batch_events
        _limit_event(events["items"]["properties"], limits)
    return schema


def _limit_event(properties: Json, limits: Limits) -> None:
    """Say in an event's schema what JSON Schema has no words for: sizes as JSON, depth, and the clock."""
    payload, timestamp = properties["payload"], properties["timestamp"]
    payload["description"] += f". At most {limits.payload_bytes} bytes as JSON, and {limits.payload_depth} levels deep"
    if limits.future_seconds:
        timestamp["description"] += f". At most {limits.future_seconds:g} s ahead of the server's clock"


def output_schema(tool: Tool) -> Json:
    """Return the JSON Schema of a tool's structured content: its answer, its open part, or a refusal.

    Clients check structured content against this even when a call failed, hence both.
    """
    others = [tool.refusal] if tool.lean is None else [tool.lean, tool.refusal]
    if tool.changes and (without_read := open_model(tool.answer)) is not tool.answer:
        others.insert(0, without_read)
    return copy.deepcopy(schema_of_any(tool.answer, tuple(others)))


def runner_of(
    api: ApiName, memory: Memory, settings: Settings, counters: turns.TurnCounters, *, is_use: bool
) -> Runner:
    """Return what runs the tools of an API; `is_use`: whether a note that is found counts as used."""
    match api:
        case "agent":
            return agent_calls.runner(memory, settings, is_use=is_use)
        case "turns":
            return turns.runner(memory, settings, counters)
        case "rest":
            return memtrace.runner(memory, settings)
        case "core" | "admin":

            def run(handler: Handler, principal: Principal, request: Any, *, changes: bool) -> Any:
                return handler(ApiCall(memory=memory, settings=settings, principal=principal), request)

            return run


def refusal_of(api: ApiName, error: MyriaError) -> tuple[Json, int]:
    """Return what a call is answered that is refused, and the status of that over plain HTTP."""
    match api:
        case "agent":
            return agent_calls.refused(error), error.http_status
        case "turns":
            return turns.refused(error), error.http_status
        case "rest":
            return rest.refused(error), rest.status_of(error)
        case "core" | "admin":
            return {"error": error.to_json()}, error.http_status
