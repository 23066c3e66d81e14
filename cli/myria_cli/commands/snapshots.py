"""`myria snapshots`, `show`, `diff`, `publish`, `rollback`, `resume` and `status`: the index and its versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from myria.builds import browse
from myria.builds.model import Degraded
from myria.db import schema
from myria.db.clock import to_rfc3339
from myria.db.database import Connection, Database
from myria.db.options import pool_options
from myria_cli import console
from myria_cli.administering import PANEL, Reason, actor, administered
from myria_cli.draw import Branches, Line, count, draw, span, topic_lines
from myria_cli.options import Options, command
from myria_cli.place import administration_of, opened

if TYPE_CHECKING:
    from myria.builds.administration import Administration

Json = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_moves(app)
    _register_views(app)


def _register_moves(app: typer.Typer) -> None:
    @command(
        app,
        "publish",
        panel=PANEL,
        examples="myria publish snap_0193c1… --reason 'looked at the labels'",
    )
    async def publish(
        options: Options,
        *,
        snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Id or number of the held snapshot.")],
        reason: Reason = None,
    ) -> None:
        """Make a held snapshot the active one (compare-and-set: fails when its parent is no longer active)."""
        settings = options.settings()
        async with opened(options, settings) as place, administration_of(place, settings) as memory:

            async def work() -> Json:
                named = await _named(memory, options.tenant, snapshot)
                return await memory.publish_snapshot(options.tenant, named, actor=actor(), reason=reason)

            moved = await administered(memory, options, "publish_snapshot", snapshot, work())
        _say_move(options, moved, "published")

    @command(
        app,
        "discard",
        panel=PANEL,
        examples="myria discard snap_0193c1… --reason 'labels went wrong'",
    )
    async def discard(
        options: Options,
        *,
        snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Id or number of the held snapshot.")],
        reason: Reason = None,
    ) -> None:
        """Give up a held snapshot for good. Automatic builds no longer wait for it; new events start the next one."""
        settings = options.settings()
        async with opened(options, settings) as place, administration_of(place, settings) as memory:

            async def work() -> Json:
                named = await _named(memory, options.tenant, snapshot)
                return await memory.discard_snapshot(options.tenant, named, actor=actor(), reason=reason)

            answer = await administered(memory, options, "discard_snapshot", snapshot, work())
        if options.json:
            console.write_json(answer)
        else:
            console.say(f"gave up {answer['snapshot_id']}; `myria rebuild` builds its events again at once")

    @command(
        app,
        "rollback",
        panel=PANEL,
        examples="""
myria rollback --reason 'bad import'

myria rollback 3
""",
    )
    async def rollback(
        options: Options,
        *,
        snapshot: Annotated[
            str | None,
            typer.Argument(metavar="SNAPSHOT", help="Id or number of where to; left out: the last one that differs."),
        ] = None,
        reason: Reason = None,
    ) -> None:
        """Make an earlier snapshot the active one. What it does not cover is served from the log.

        Automatic builds pause until `myria resume`, a manual rebuild or a publish: a rollback must not undo itself.
        """
        settings = options.settings()
        async with opened(options, settings) as place, administration_of(place, settings) as memory:

            async def work() -> Json:
                named = None if snapshot is None else await _named(memory, options.tenant, snapshot)
                return await memory.rollback(options.tenant, named, actor=actor(), reason=reason)

            moved = await administered(memory, options, "rollback", snapshot, work())
        _say_move(options, moved, "rolled back to")
        if not options.json:
            console.say("automatic builds are paused; `myria resume` lets them run again", "dim")

    @command(app, "resume", panel=PANEL, examples="myria resume")
    async def resume(options: Options) -> None:
        """Let automatic builds run again after a rollback."""
        settings = options.settings()
        async with opened(options, settings) as place, administration_of(place, settings) as memory:
            work = memory.resume_builds(options.tenant)
            answer = await administered(memory, options, "resume_builds", None, work)
        if options.json:
            console.write_json(answer)
        else:
            console.say("automatic builds run again" if answer["resumed"] else "automatic builds were not paused")


async def _named(memory: Administration, tenant: str, name: str) -> str:
    """Return the id of a snapshot that is named as for `myria diff`: by its id, its number or `active`.

    Raises:
        SnapshotNotFound: there is none.
    """
    await memory.ready()
    async with memory.database.read(tenant) as connection:
        return (await browse.find_snapshot(connection, tenant, name)).snapshot_id


def _register_views(app: typer.Typer) -> None:
    @command(app, "snapshots", panel=PANEL, examples="myria snapshots --limit 5")
    async def snapshots(
        options: Options,
        *,
        limit: Annotated[int, typer.Option(min=1, max=200, help="How many, newest first.")] = 50,
        cursor: Annotated[str | None, typer.Option(help="next_cursor of the answer before.")] = None,
    ) -> None:
        """List the snapshots that are kept, newest first."""
        settings = options.settings()
        async with opened(options, settings) as place, administration_of(place, settings) as memory:
            answer = await memory.list_snapshots(options.tenant, limit=limit, cursor=cursor)
        if options.json:
            console.write_json(answer)
            return
        if not answer["snapshots"]:
            console.say("no snapshot yet")
            return
        numbers = {snapshot["snapshot_id"]: snapshot["number"] for snapshot in answer["snapshots"]}
        console.write(
            console.table(
                ("no.", "snapshot", "status", "cutoff", "new", "created", "parent"),
                (_snapshot_row(snapshot, numbers) for snapshot in answer["snapshots"]),
                right=("no.", "cutoff", "new", "parent"),
            )
        )
        if answer.get("next_cursor"):
            console.say(f"--cursor {answer['next_cursor']}", "dim")

    @command(app, "status", panel=PANEL, examples="myria status --json | jq .tail_events")
    async def status(options: Options) -> None:
        """Say how fresh the memory is, and what builds are doing."""
        settings = options.settings()
        async with opened(options, settings) as place, administration_of(place, settings) as memory:
            answer = await memory.get_snapshot_status(options.tenant)
        if options.json:
            console.write_json(answer)
        else:
            console.write(console.table(("", ""), _status_rows(place.name, options.tenant, answer)))
            if not answer["tail_events"] and answer["last_build"] is None:
                console.say(f"nothing was ever built for the tenant {options.tenant}, and nothing waits", "dim")

    @command(
        app,
        "show",
        panel=PANEL,
        examples="""
myria show

myria show --as mika --depth 3

myria show snap_0193c1… --summaries | less

myria show --subjects
""",
    )
    async def show(
        options: Options,
        *,
        snapshot: Annotated[
            str, typer.Argument(metavar="SNAPSHOT", help="Id or number; left out: the active one.")
        ] = "active",
        depth: Annotated[int | None, typer.Option(min=1, help="Levels of topics to draw.")] = None,
        as_: Annotated[
            list[str] | None,
            typer.Option("--as", metavar="NAME", help="Only what this participant may see; repeat for several."),
        ] = None,
        summaries: Annotated[bool, typer.Option("--summaries", help="Draw the summaries too.")] = False,
        subjects: Annotated[
            bool, typer.Option("--subjects", help="Draw what the topics are about in place of when they were.")
        ] = False,
    ) -> None:
        """Draw the topic trees of a snapshot, one per scope, as an administrator sees them."""
        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            async with database.read(options.tenant) as connection:
                chosen = await browse.find_snapshot(connection, options.tenant, snapshot)
                roots = _roots(connection, options.tenant, chosen, as_ or (), subjects=subjects)
                if options.json:
                    scopes = [
                        {
                            "participants": list(root.participants),
                            "root": await _nested(
                                connection, options.tenant, root.root, depth, floor=chosen.withdrawn_floor
                            ),
                        }
                        async for root in roots
                    ]
                    console.write_json({"snapshot_id": chosen.snapshot_id, "status": chosen.status, "scopes": scopes})
                    return
                console.say(f"snapshot {chosen.snapshot_id}, {chosen.status}, up to event {chosen.cutoff}", "dim")
                screen = console.out()
                async for root in roots:
                    console.write(Text(console.shown(", ".join(root.participants)), style="bold cyan"))
                    lines = _drawn(
                        connection,
                        options.tenant,
                        root.root,
                        depth,
                        summaries=summaries,
                        floor=chosen.withdrawn_floor,
                    )
                    async for line in lines:
                        draw([line], screen)

    @command(
        app,
        "diff",
        panel=PANEL,
        examples="""
myria diff 3 4

myria diff snap_0193c1… active --json
""",
    )
    async def diff(
        options: Options,
        *,
        a: Annotated[str, typer.Argument(metavar="A", help="Id or number of the earlier snapshot.")],
        b: Annotated[str, typer.Argument(metavar="B", help="Of the later one, or `active`.")] = "active",
    ) -> None:
        """Tell what differs between two snapshots: topics and subjects added, gone, changed, and events that moved."""
        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            async with database.read(options.tenant) as connection:
                before = await browse.find_snapshot(connection, options.tenant, a)
                after = await browse.find_snapshot(connection, options.tenant, b)
                differences = browse.differing_scopes(connection, options.tenant, before, after)
                if options.json:
                    console.write_json(
                        {
                            "before": before.snapshot_id,
                            "after": after.snapshot_id,
                            "scopes": [_difference_json(difference) async for difference in differences],
                        }
                    )
                    return
                same = True
                async for difference in differences:
                    same = False
                    for line in _difference_lines(difference):
                        console.write(line)
                if same:
                    console.say("no difference")


async def _roots(
    connection: Connection, tenant: str, snapshot: browse.SnapshotRow, participants: Sequence[str], *, subjects: bool
) -> AsyncIterator[browse.ScopeRoot]:
    """Yield the scopes of a snapshot with the roots of their trees; of those of subjects where they are asked for."""
    async for scope in browse.scope_roots(connection, tenant, snapshot, participants=participants):
        if not subjects:
            yield scope
        elif (root := await browse.subject_root(connection, tenant, snapshot, scope.scope_id)) is not None:
            yield replace(scope, root=root)


async def _drawn(
    connection: Connection, tenant: str, root: bytes, depth: int | None, *, summaries: bool, floor: int
) -> AsyncIterator[Line]:
    """Yield the lines of one tree, reading it as it is drawn."""
    [top] = await browse.tree_nodes(connection, tenant, [root], floor=floor)
    stack = [(top, Branches().below(last=True), 1)]
    while stack:
        node, branches, level = stack.pop()
        opened_here = bool(node.children) and (depth is None or level < depth)
        for line in topic_lines(node, branches, summaries=summaries, has_children=opened_here):
            yield line
        if opened_here:
            children = await browse.tree_nodes(connection, tenant, node.children, floor=floor)
            last = len(children) - 1
            stack += [
                (child, branches.below(last=at == last), level + 1) for at, child in reversed(list(enumerate(children)))
            ]


async def _nested(connection: Connection, tenant: str, root: bytes, depth: int | None, *, floor: int) -> dict[str, Any]:
    [node] = await browse.tree_nodes(connection, tenant, [root], floor=floor)
    document = _topic_json(node)
    if node.children and (depth is None or depth > 1):
        deeper = None if depth is None else depth - 1
        document["children"] = [
            await _nested(connection, tenant, child, deeper, floor=floor) for child in node.children
        ]
    return document


def _topic_json(node: browse.TreeNode) -> dict[str, Any]:
    document: dict[str, Any] = {
        "kind": "leaf_topic" if node.is_leaf else "subject" if node.is_subject else "internal_topic",
        "topic_id": node.topic_id,
        "node_id": node.node_id.hex(),
        "rendering_id": node.rendering_id.hex(),
        "level": node.level,
        "label": node.label,
        "summary": node.summary,
        "first_at": to_rfc3339(node.first_at),
        "last_at": to_rfc3339(node.last_at),
        "events": node.events,
        "leaves": node.leaves,
    }
    if node.is_leaf:
        document["event_seqs"] = list(node.event_seqs)
    return document


def _difference_json(difference: browse.ScopeDifference) -> dict[str, Any]:
    return {
        "participants": list(difference.participants),
        "topics": [_change_json(topic) for topic in difference.topics],
        "subjects": [_change_json(subject) for subject in difference.subjects],
        "events": [
            {"event_seq": event.event_seq, "before": event.before, "after": event.after} for event in difference.events
        ],
    }


def _change_json(topic: browse.ChangedTopic) -> dict[str, Any]:
    return {
        "change": topic.change,
        "topic_id": topic.topic_id,
        "before": None if topic.before is None else _topic_json(topic.before),
        "after": None if topic.after is None else _topic_json(topic.after),
    }


_SIGNS = {"added": ("+", "green"), "gone": ("-", "red"), "changed": ("~", "yellow")}


def _difference_lines(difference: browse.ScopeDifference) -> list[Text]:
    moved = sum(1 for event in difference.events if event.before and event.after)
    came = sum(1 for event in difference.events if not event.before)
    went = sum(1 for event in difference.events if not event.after)
    heading = Text(console.shown(", ".join(difference.participants)), style="bold cyan")
    notes = [f"{number:,} {what}" for number, what in ((came, "new"), (moved, "moved"), (went, "gone")) if number]
    heading.append(f"  events: {', '.join(notes) or 'the same'}", style="dim")
    lines = [heading]
    lines += [_change_line(topic, "") for topic in difference.topics]
    lines += [_change_line(subject, "subject, ") for subject in difference.subjects]
    return lines


def _change_line(topic: browse.ChangedTopic, kind: str) -> Text:
    sign, style = _SIGNS[topic.change]
    line = Text(f"  {sign} {console.one_line(topic.node.label, 100)}", style=style)
    line.append(f"  {kind}{_change_note(topic)}", style="dim")
    return line


def _change_note(topic: browse.ChangedTopic) -> str:
    node = topic.node
    notes = [topic.topic_id, count(node.events, "event"), span(node.first_at, node.last_at)]
    if topic.before is not None and topic.after is not None:
        if topic.before.events != topic.after.events:
            notes[1] = f"{topic.before.events:,} -> {count(topic.after.events, 'event')}"
        if topic.before.label != topic.after.label:
            notes.append(f"was {console.one_line(topic.before.label, 60)!r}")
    return ", ".join(notes)


def _say_move(options: Options, moved: dict[str, Any], verb: str) -> None:
    if options.json:
        console.write_json(moved)
    else:
        console.say(f"{verb} {moved['snapshot_id']} (before: {moved.get('previous_snapshot_id') or 'none'})")


def _snapshot_row(snapshot: dict[str, Any], numbers: dict[str, int]) -> Sequence[object]:
    status, parent = snapshot["status"], snapshot["parent_snapshot_id"]
    return (
        snapshot.get("number"),
        snapshot["snapshot_id"],
        Text(status, style="bold green" if status == "active" else ""),
        snapshot.get("cutoff"),
        (snapshot.get("counts") or {}).get("events_new", 0),
        str(snapshot.get("created_at", ""))[:16].replace("T", " "),
        None if parent is None else numbers.get(parent, "older"),
    )


def _status_rows(place: str, tenant: str, answer: dict[str, Any]) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = [
        ("memory", f"{place}, tenant {tenant}"),
        ("active snapshot", answer["active_snapshot_id"] or "none yet"),
        *([("", console.one_line(str(Degraded(**answer["degraded"]))))] if answer["degraded"] else []),
        ("fresh tail", count(answer["tail_events"], "event")),
        ("building", answer["building"]),
        ("queued", answer["queued"]),
        ("automatic builds", f"paused: {answer['paused_reason']}" if answer["paused"] else "on"),
    ]
    last = answer.get("last_build")
    if last:
        rows.append(("last build", f"{last['status']} ({last['trigger']}), {last['build_id']}"))
        if last.get("error"):
            rows.append(("its error", console.one_line(f"{last['error']['code']}: {last['error']['message']}")))
        if last.get("degraded") and last["snapshot_id"] not in {None, answer["active_snapshot_id"]}:
            rows.append(("", console.one_line(str(Degraded(**last["degraded"])))))
    for work, wait in answer["waits"].items():
        rows.append((f"{work} wait", console.one_line(f"since {wait['since']}: {wait['reason']}; see docs/llm.md")))
    rows += _trigger_rows(answer["triggers"])
    rows.append(("embeddings", answer["embeddings"]))
    return rows


def _trigger_rows(triggers: dict[str, Any]) -> list[Sequence[object]]:
    """Return a row for each thing that starts a build."""
    quiet, tail = triggers["inactivity"], triggers["tail_threshold"]
    last = f"; the last event came at {console.to_the_second(quiet['last_event_at'])}" if quiet["last_event_at"] else ""
    return [
        ("builds begin", "when `myria rebuild` asks" if triggers["manual"]["enabled"] else "not by `myria rebuild`"),
        ("", f"after {quiet['timeout_s']:g} s without an event{last}" if quiet["enabled"] else "not after a silence"),
        ("", f"at {tail['max_unindexed_events']:,} fresh events" if tail["enabled"] else "not for a long tail"),
    ]
