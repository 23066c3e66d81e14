"""`myria audit` and `replay`: who did what, what language models were asked, and builds repeated without them."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from myria.access import journal
from myria.builds.replay import Replay, replay
from myria.db import schema
from myria.db.clock import rfc3339_of
from myria.db.database import Database
from myria.db.options import pool_options
from myria.db.queries import sql
from myria.errors import InvalidArgument
from myria.notes.feedback import feedback_report
from myria_cli import console
from myria_cli.options import Options, command
from myria_cli.place import opened

PANEL = "Keep it well"
DIFFERENT = 1

_PREVIEW = 4_000


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""

    @command(
        app,
        "audit",
        panel=PANEL,
        examples="""
myria audit

myria audit --build bld_0198c1d2 --full

myria audit --failed --json | jq '.calls[].outcome'

myria audit --access

myria audit --calls --json --tenant team-a
""",
    )
    async def audit(
        options: Options,
        *,
        build: Annotated[str | None, typer.Option("--build", metavar="BUILD", help="Only of this build.")] = None,
        workflow: Annotated[
            str | None, typer.Option("--workflow", help="Only `build`, `walk`, `evaluate` or `extract`.")
        ] = None,
        failed: Annotated[bool, typer.Option("--failed", help="Only calls whose reply could not be used.")] = False,
        limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many, newest first.")] = 50,
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
        """
        settings = options.settings()
        if access and calls_:
            raise InvalidArgument("--access and --calls show two different things; give one of them", field="calls")
        if access or calls_:
            tenant = None if options.tenant == "default" else options.tenant
            read = journal.entries if access else journal.calls
            async with opened(options, settings) as place, Database(place.control, pool_options(settings)) as database:
                await schema.check(database)
                records = await read(database, tenant, limit)
            if options.json:
                console.write_json({"access" if access else "calls": records})
            elif access:
                _show_entries(records)
            else:
                _show_recorded(records)
            return
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            async with database.read(options.tenant) as connection:
                rows = await connection.fetch(sql("llm.calls"), options.tenant, build, workflow, failed, limit)
        calls = [_call(row) for row in rows]
        if options.json:
            console.write_json({"calls": calls if full else [_short(call) for call in calls]})
            return
        _show(calls)
        if full:
            for call in calls:
                _show_texts(call)

    @command(
        app,
        "feedback",
        panel=PANEL,
        examples="""
myria feedback

myria feedback --json | jq '.tools[] | select(.sufficient < .said)'
""",
    )
    async def feedback(
        options: Options,
        *,
        limit: Annotated[
            int, typer.Option("--limit", min=1, max=10_000, help="How many suggestions, newest first.")
        ] = 20,
    ) -> None:
        """Show what agents say of answers of tools, and of how tasks went: how often it was good, and their words."""
        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            report = await feedback_report(database, options.tenant, limit=limit)
        if options.json:
            console.write_json(report)
            return
        rows = [(row["tool"], row["said"], row["relevant"], row["sufficient"]) for row in report["tools"]]
        columns = ("tool", "said", "relevant", "sufficient")
        console.write(console.table(columns, rows, right=columns[1:]))
        for said in report["newest"]:
            words = "; ".join(filter(None, (said["suggestion"], said["context"])))
            console.say(f"{said['at'][:10]} {console.shown(said['tool'])}: {console.shown(words)}")
        tasks = report["tasks"]
        if tasks["said"]:
            console.say(f"Tasks: {tasks['succeeded']:,} of {tasks['said']:,} went well.")
        for task in report["newest_tasks"]:
            words = "; ".join([*task["highlights"], *task["pain_points"]])
            went = {True: "went well", False: "did not go well"}.get(task["success"], "is over")
            console.say(
                f"{task['at'][:10]} {console.shown(task['session'] or 'a session')} {went}: {console.shown(words)}"
            )

    @command(
        app,
        "replay",
        panel=PANEL,
        examples="""
myria replay bld_0198c1d2

myria replay bld_0198c1d2 --json | jq .equal
""",
    )
    async def replay_(
        options: Options,
        *,
        build: Annotated[str, typer.Argument(metavar="BUILD", help="A build that ended with a snapshot.")],
    ) -> int:
        """Repeat a build from its stored plans against its retained parent, without any model, and compare the roots.

        Nothing is written. Exit 1 when a scope gets another root.
        """
        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            repeated = await replay(database, options.tenant, build, settings.planner.for_planner())
        if options.json:
            console.write_json(repeated.to_json())
        else:
            _show_replay(repeated)
        return 0 if repeated.is_equal else DIFFERENT


def _show_entries(entries: list[dict[str, Any]]) -> None:
    rows = [
        (
            entry["at"][:19],
            entry["tenant"] or "?",
            console.shown(entry["actor"]),
            entry["action"],
            console.shown(entry["target"] or ""),
            Text(entry["outcome"], style="green" if entry["outcome"] == "ok" else "red"),
            entry["address"] or "",
            f"{entry['times']:,}",
        )
        for entry in entries
    ]
    columns = ("at", "tenant", "who", "did, or asked for", "what", "outcome", "from", "times")
    console.write(console.table(columns, rows, right=("times",)))


def _show_recorded(calls: list[dict[str, Any]]) -> None:
    rows = [
        (
            call["at"][:19],
            call["tenant"],
            console.shown(call["principal"]),
            call["face"],
            call["tool"],
            console.shown(call["context"] or ""),
            f"{call['latency_ms']:,.1f}",
            Text(call["outcome"], style="green" if call["outcome"] == "ok" else "red"),
        )
        for call in calls
    ]
    columns = ("at", "tenant", "who", "face", "tool", "context", "ms", "outcome")
    console.write(console.table(columns, rows, right=("ms",)))


def _call(row: Any) -> dict[str, Any]:
    hashes = {name: row[name].hex() if row[name] is not None else None for name in ("prompt_sha256", "reply_sha256")}
    return {
        **dict(row),
        **hashes,
        "unit": row["unit"].hex() if row["unit"] is not None else None,
        "mask": list(row["mask"]),
        "mask_scopes": list(row["mask_scopes"]),
        "tools": orjson.loads(row["tools"]),
        "created_at": rfc3339_of(row["created_at"]),
    }


def _short(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name not in ("prompt", "reply")}


def _show(calls: list[dict[str, Any]]) -> None:
    rows = []
    for call in calls:
        good = call["outcome"] == "ok"
        rows.append(
            (
                call["created_at"][:19],
                call["workflow"],
                ", ".join(call["mask"]),
                f"{call['round']}.{call['attempt']}",
                f"{call['input_tokens']:,}",
                f"{call['output_tokens']:,}",
                f"{call['cost_microusd'] / 1e6:.4f}",
                f"{call['latency_ms']:,}",
                Text(call["outcome"], style="green" if good else "red"),
                call["build_id"] or call["request_id"],
            )
        )
    right = ("in", "out", "USD", "ms")
    columns = ("at", "workflow", "for", "round", "in", "out", "USD", "ms", "outcome", "belongs to")
    console.write(console.table(columns, rows, right=right))
    spent = sum(call["cost_microusd"] for call in calls) / 1e6
    console.say(f"{len(calls):,} calls, {spent:.4f} USD", "dim")


def _show_texts(call: dict[str, Any]) -> None:
    console.write(Text(f"\n{call['call_id']}  {call['model']}  {call['outcome']}", style="bold"))
    if call["message"]:
        console.write(Text(console.shown(call["message"]), style="red"))
    for name in ("prompt", "reply"):
        console.write(Text(f"{name}, {call[f'{name}_bytes']:,} bytes, sha256 {call[f'{name}_sha256']}", style="dim"))
        if call[name]:
            console.write(Text(console.shown(call[name])[:_PREVIEW]))
    for tool in call["tools"]:
        console.write(Text(console.shown(console.json_text(tool))[:_PREVIEW], style="cyan"))


def _show_replay(repeated: Replay) -> None:
    rows = [
        (
            Text("equal", style="green") if scope.is_equal else Text("DIFFERENT", style="bold red"),
            ", ".join(scope.participants),
            scope.root.hex()[:16] if scope.root is not None else None,
            scope.again.hex()[:16] if scope.again is not None else None,
        )
        for scope in repeated.scopes
    ]
    console.write(console.table(("", "scope", "root", "again"), rows))
    against = repeated.parent_snapshot_id or "nothing"
    console.say(f"{repeated.build_id} against {against}: {len(rows):,} scopes", "dim")
