"""`myria audit`, `feedback` and `replay`: who did what, what models were asked, and builds repeated without them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from myria.errors import InvalidArgument
from myria_cli import console
from myria_cli.commands.database import PANEL
from myria_cli.options import Options, command
from myria_cli.place import database_of

DIFFERENT = 1

_PREVIEW = 4_000

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "audit")
async def audit(
    options: Options,
    *,
    build: Annotated[str | None, typer.Option(metavar="BUILD", help="Only of this build.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only `build`, `walk`, `evaluate` or `extract`.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls whose reply could not be used.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 50,
    full: Annotated[bool, typer.Option("--full", help="With prompts, replies and tool calls.")] = False,
    access: Annotated[
        bool, typer.Option("--access", help="Instead: what was administered, and which attempts were refused.")
    ] = False,
    calls_: Annotated[
        bool, typer.Option("--calls", help="Instead: the records of calls of tools, without their content.")
    ] = False,
) -> None:
    """Show the requests to language models: for whom, what they used and cost, how they ended.

    Prompts and replies are there when llm.audit is `full`; credentials never are. See docs/llm.md.

    --access and --calls show every tenant of the database, or the one that --tenant names if it is not `default`.

    Examples:
        myria audit
        myria audit --build bld_0198c1d2 --full
        myria audit --failed --json | jq '.calls[].outcome'
        myria audit --access
        myria audit --calls --json --tenant team-a
    """
    if access and calls_:
        raise InvalidArgument("--access and --calls show two different things; give one of them", field="calls")
    if access or calls_:
        from myria.access import journal

        tenant = None if options.tenant == "default" else options.tenant
        async with database_of(options, "control") as database:
            records = await (journal.entries if access else journal.calls)(database, tenant, limit)
        if access:
            options.answer({"access": records}, console.table(_ENTRY, records, right=("times",)))
        else:
            options.answer({"calls": records}, console.table(_RECORDED_CALL, records, right=("ms",)))
        return
    from myria.llm.audit import recorded_calls

    async with database_of(options) as database:
        calls = await recorded_calls(
            database, options.tenant, build_id=build, workflow=workflow, failed=failed, limit=limit
        )
    spent = sum(call["cost_microusd"] for call in calls) / 1e6
    left_out = () if full else ("prompt", "reply")
    options.answer(
        {"calls": [{name: value for name, value in call.items() if name not in left_out} for call in calls]},
        console.table(_MODEL_CALL, calls, right=("in", "out", "USD", "ms")),
        f"{len(calls):,} calls, {spent:.4f} USD",
        *(_texts(call) for call in calls if full),
    )


@command(app, "feedback")
async def feedback(
    options: Options,
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many suggestions, newest first.")] = 20,
) -> None:
    """Show what agents say of answers of tools, and of how tasks went: how often it was good, and their words.

    Examples:
        myria feedback
        myria feedback --json | jq '.tools[] | select(.sufficient < .said)'
    """
    from myria.notes.feedback import feedback_report

    async with database_of(options) as database:
        report = await feedback_report(database, options.tenant, limit=limit)
    columns = ("tool", "said", "relevant", "sufficient")
    tasks = report["tasks"]
    options.answer(
        report,
        console.table({name: name for name in columns}, report["tools"], right=columns[1:]),
        *(
            f"{said['at'][:10]} {said['tool']}: {'; '.join(filter(None, (said['suggestion'], said['context'])))}"
            for said in report["newest"]
        ),
        f"Tasks: {tasks['succeeded']:,} of {tasks['said']:,} went well." if tasks["said"] else None,
        *(
            f"{task['at'][:10]} {task['session'] or 'a session'} "
            f"{ {True: 'went well', False: 'did not go well'}.get(task['success'], 'is over') }: "
            f"{'; '.join([*task['highlights'], *task['pain_points']])}"
            for task in report["newest_tasks"]
        ),
    )


@command(app, "replay")
async def replay(
    options: Options,
    *,
    build: Annotated[str, typer.Argument(metavar="BUILD", help="A build that ended with a snapshot.")],
) -> int:
    """Repeat a build from its stored plans against its retained parent, without any model, and compare the roots.

    Nothing is written. Exit 1 when a scope gets another root.

    Examples:
        myria replay bld_0198c1d2
        myria replay bld_0198c1d2 --json | jq .equal
    """
    from myria.builds.replay import replay as repeat

    planner = options.settings().planner
    async with database_of(options) as database:
        repeated = await repeat(database, options.tenant, build, planner)
    columns: dict[str, console.Column] = {
        "": lambda scope: Text("equal", style="green") if scope["equal"] else Text("DIFFERENT", style="bold red"),
        "scope": lambda scope: tuple(scope["participants"]),
        "root": lambda scope: scope["root"] and scope["root"][:16],
        "again": lambda scope: scope["again"] and scope["again"][:16],
    }
    options.answer(
        repeated,
        console.table(columns, repeated["scopes"]),
        f"{build} against {repeated['parent_snapshot_id'] or 'nothing'}: {len(repeated['scopes']):,} scopes",
    )
    return 0 if repeated["equal"] else DIFFERENT


_ENTRY: dict[str, console.Column] = {
    "at": lambda entry: entry["at"][:19],
    "tenant": lambda entry: entry["tenant"] or "?",
    "who": "actor",
    "did, or asked for": "action",
    "what": lambda entry: entry["target"] or "",
    "outcome": lambda entry: console.outcome(entry["outcome"]),
    "from": lambda entry: entry["address"] or "",
    "times": lambda entry: f"{entry['times']:,}",
}
"""Columns of what was administered, and of refused attempts."""

_RECORDED_CALL: dict[str, console.Column] = {
    "at": lambda call: call["at"][:19],
    "tenant": "tenant",
    "who": "principal",
    "face": "face",
    "tool": "tool",
    "context": lambda call: call["context"] or "",
    "ms": lambda call: f"{call['latency_ms']:,.1f}",
    "outcome": lambda call: console.outcome(call["outcome"]),
}
"""Columns of calls of tools."""

_MODEL_CALL: dict[str, console.Column] = {
    "at": lambda call: call["created_at"][:19],
    "workflow": "workflow",
    "for": "mask",
    "round": lambda call: f"{call['round']}.{call['attempt']}",
    "in": lambda call: f"{call['input_tokens']:,}",
    "out": lambda call: f"{call['output_tokens']:,}",
    "USD": lambda call: f"{call['cost_microusd'] / 1e6:.4f}",
    "ms": lambda call: f"{call['latency_ms']:,}",
    "outcome": lambda call: console.outcome(call["outcome"]),
    "belongs to": lambda call: call["build_id"] or call["request_id"],
}
"""Columns of requests to language models."""


def _texts(call: dict[str, Any]) -> Text:
    """Return what was asked and answered, and what tools did meanwhile."""
    text = Text.assemble((f"\n{call['call_id']}  {call['model']}  {call['outcome']}", "bold"))
    if call["message"]:
        text.append("\n" + console.shown(call["message"]), style="red")
    for name in ("prompt", "reply"):
        size, digest = call[f"{name}_bytes"], call[f"{name}_sha256"]
        text.append(f"\n{name}, {size:,} bytes, sha256 {digest}", style="dim")
        if call[name]:
            text.append("\n" + console.shown(call[name])[:_PREVIEW])
    for tool in call["tools"]:
        text.append("\n" + console.shown(console.json_text(tool))[:_PREVIEW], style="cyan")
    return text
