"""`myria snapshots`, `status`, `show` and `diff`: what is in the index, and how two of its versions differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from myria.builds.model import Degraded
from myria.builds.queue import WAITS_FOR
from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria_cli import console
from myria_cli.commands.builds import PANEL
from myria_cli.console import count
from myria_cli.draw import span, topic_text
from myria_cli.options import Options, command
from myria_cli.place import administration_of, database_of, opened

if TYPE_CHECKING:
    from myria.builds import browse

Json = dict[str, Any]

_SIGNS = {"added": ("+", "green"), "gone": ("-", "red"), "changed": ("~", "yellow")}

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "snapshots")
async def snapshots(
    options: Options,
    *,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, newest first.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="next_cursor of the answer before.")] = None,
) -> None:
    """List the snapshots that are kept, newest first.

    Examples:
        myria snapshots --limit 5
    """
    async with administration_of(options) as administration:
        answer = await administration.registry.list_snapshots(options.tenant, limit=limit, cursor=cursor)
    snapshot_rows, next_cursor = answer["snapshots"], answer.get("next_cursor")
    options.answer(
        answer,
        _snapshot_table(snapshot_rows) if snapshot_rows else "no snapshot yet",
        f"--cursor {next_cursor}" if next_cursor else None,
    )


@command(app, "status")
async def status(options: Options) -> None:
    """Say how fresh the memory is, and what builds are doing.

    Examples:
        myria status --json | jq .tail_events
    """
    from myria.builds.administration import Administration

    settings = options.settings()
    async with opened(options, settings) as place, Administration(place.serving, settings) as administration:
        answer = await administration.registry.status(options.tenant)
    nothing = not answer["tail_events"] and answer["last_build"] is None
    options.answer(
        answer,
        console.fields(_status_fields(f"{place.name}, tenant {options.tenant}", answer)),
        f"nothing was ever built for the tenant {options.tenant}, and nothing waits" if nothing else None,
    )


@command(app, "show")
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
    """Draw the topic trees of a snapshot, one per scope, as an administrator sees them.

    Examples:
        myria show
        myria show --as mika --depth 3
        myria show snap_0193c1… --summaries | less
        myria show --subjects
    """
    from myria.builds import browse

    scopes: list[Json] = []
    async with database_of(options) as database, database.read(options.tenant) as connection:
        snapshot_row = await browse.find_snapshot(connection, options.tenant, snapshot)
        if not options.json:
            console.say(
                f"snapshot {snapshot_row.snapshot_id}, {snapshot_row.status}, up to event {snapshot_row.cutoff}", "dim"
            )
        reader = await browse.ShownTrees.of(connection, options.tenant, snapshot_row)
        async for scope in _scope_roots(connection, options.tenant, snapshot_row, as_ or (), subjects=subjects):
            [root] = await _read_topics(reader, [scope.root], depth)
            if options.json:
                scopes.append({"participants": list(scope.participants), "root": _topic_json(root)})
            else:
                heading = Text(console.shown(", ".join(scope.participants)), style="bold cyan")
                console.write(_add_topics(Tree(heading, guide_style="dim"), [root], summaries=summaries))
    if options.json:
        console.write_json({"snapshot_id": snapshot_row.snapshot_id, "status": snapshot_row.status, "scopes": scopes})


@command(app, "diff")
async def diff(
    options: Options,
    *,
    a: Annotated[str, typer.Argument(metavar="A", help="Id or number of the earlier snapshot.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Of the later one, or `active`.")] = "active",
) -> None:
    """Tell what differs between two snapshots: topics and subjects added, gone, changed, and events that moved.

    Examples:
        myria diff 3 4
        myria diff snap_0193c1… active --json
    """
    from myria.builds import browse

    scopes: list[Json] = []
    is_equal = True
    async with database_of(options) as database, database.read(options.tenant) as connection:
        before = await browse.find_snapshot(connection, options.tenant, a)
        after = await browse.find_snapshot(connection, options.tenant, b)
        async for _, difference in browse.differing_scopes(connection, options.tenant, before, after):
            is_equal = False
            if options.json:
                scopes.append(difference)
            else:
                console.write(_difference_text(difference))
    if options.json:
        console.write_json({"before": before.snapshot_id, "after": after.snapshot_id, "scopes": scopes})
    elif is_equal:
        console.say("no difference")


async def _scope_roots(
    connection: Connection, tenant: str, snapshot: browse.SnapshotRow, participants: Sequence[str], *, subjects: bool
) -> AsyncIterator[browse.ScopeRoot]:
    """Yield the scopes of a snapshot with the roots of their topic trees, or of their trees of subjects."""
    from myria.builds import browse

    async for scope in browse.scope_roots(connection, tenant, snapshot, participants=participants):
        if not subjects:
            yield scope
        elif (root := await browse.subject_root(connection, tenant, snapshot, scope.scope_id)) is not None:
            yield replace(scope, root=root)


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic with its subtopics, down to the depth that is drawn."""

    node: browse.TreeNode
    below: list[_Topic]


async def _read_topics(reader: browse.ShownTrees, renderings: Sequence[bytes], depth: int | None) -> list[_Topic]:
    """Read topics with their subtopics, `depth` levels in all, counting the topics themselves; None reads all."""
    deeper = None if depth is None else depth - 1
    return [
        _Topic(
            node,
            await _read_topics(reader, node.children, deeper) if node.children and deeper != 0 else [],
        )
        for node in await reader.nodes(renderings)
    ]


def _add_topics(tree: Tree, topics: Sequence[_Topic], *, summaries: bool) -> Tree:
    for topic in topics:
        _add_topics(tree.add(topic_text(topic.node, summaries=summaries)), topic.below, summaries=summaries)
    return tree


def _topic_json(topic: _Topic) -> Json:
    document = topic.node.to_json()
    if topic.below:
        document["children"] = [_topic_json(child) for child in topic.below]
    return document


def _difference_text(difference: Json) -> Text:
    """Return a scope's heading with counts of differing events, and a line for each topic that differs."""
    events = difference["events"]
    moved = sum(1 for event in events if event["before"] and event["after"])
    added = sum(1 for event in events if not event["before"])
    gone = sum(1 for event in events if not event["after"])
    event_counts = [
        f"{number:,} {what}" for number, what in ((added, "new"), (moved, "moved"), (gone, "gone")) if number
    ]
    text = Text.assemble(
        (console.shown(", ".join(difference["participants"])), "bold cyan"),
        (f"  events: {', '.join(event_counts) or 'the same'}", "dim"),
    )
    for kind, changes in (("", difference["topics"]), ("subject, ", difference["subjects"])):
        for change in changes:
            sign, style = _SIGNS[change["change"]]
            label = (change["after"] or change["before"])["label"]
            text.append(f"\n  {sign} {console.one_line(label, 100)}", style=style)
            text.append(f"  {kind}{_change_note(change)}", style="dim")
    return text


def _change_note(change: Json) -> str:
    """Return what a diff says about a changed topic behind its label."""
    from myria.log.withdrawal.model import NEUTRAL_LABEL

    before, after = change["before"], change["after"]
    node = after or before
    first_at, last_at = (to_microseconds(datetime.fromisoformat(node[name])) for name in ("first_at", "last_at"))
    notes = [change["topic_id"], count(node["events"], "event"), span(first_at, last_at)]
    if before is not None and after is not None:
        if before["events"] != after["events"]:
            notes[1] = f"{before['events']:,} -> {count(after['events'], 'event')}"
        if before["label"] != after["label"] and NEUTRAL_LABEL not in (before["label"], after["label"]):
            notes.append(f"was {console.one_line(before['label'], 60)!r}")
    return ", ".join(notes)


def _snapshot_table(kept: Sequence[Json]) -> Any:
    numbers = {snapshot["snapshot_id"]: snapshot["number"] for snapshot in kept}
    columns: dict[str, console.Column] = {
        "no.": "number",
        "snapshot": "snapshot_id",
        "status": lambda snapshot: Text(
            snapshot["status"], style="bold green" if snapshot["status"] == "active" else ""
        ),
        "cutoff": "cutoff",
        "new": lambda snapshot: (snapshot.get("counts") or {}).get("events_new", 0),
        "created": lambda snapshot: str(snapshot.get("created_at", ""))[:16].replace("T", " "),
        "parent": lambda snapshot: (parent := snapshot["parent_snapshot_id"]) and numbers.get(parent, "older"),
    }
    return console.table(columns, kept, right=("no.", "cutoff", "new", "parent"))


def _status_fields(where: str, answer: Json) -> list[tuple[str, object]]:
    """Return the lines of `myria status`, as names and values; an empty name continues the line above."""
    inactivity, tail = answer["triggers"]["inactivity"], answer["triggers"]["tail_threshold"]
    last_build, degraded, active = answer.get("last_build"), answer["degraded"], answer["active_snapshot_id"]
    is_manual_on, rest_end = answer["triggers"]["manual"]["enabled"], answer["resting_until"]
    last_event_text = (
        f"; the last event came at {console.to_the_second(inactivity['last_event_at'])}"
        if inactivity["last_event_at"]
        else ""
    )
    rows: list[tuple[str, object]] = [
        ("memory", where),
        ("active snapshot", active or "none yet"),
        ("", console.one_line(str(Degraded(**degraded))) if degraded else None),
        ("fresh tail", count(answer["tail_events"], "event")),
        ("building", answer["building"]),
        ("queued", answer["queued"]),
        *(("", f"{one['request_id']} waits {WAITS_FOR[one['waits_for']]}") for one in answer["waiting"]),
        ("automatic builds", f"paused: {answer['paused_reason']}" if answer["paused"] else "on"),
        ("", rest_end and f"they rest until {console.to_the_second(rest_end)}, after a long one"),
    ]
    if last_build:
        rows.append(("last build", f"{last_build['status']} ({last_build['trigger']}), {last_build['build_id']}"))
        if last_build.get("error"):
            rows.append(
                ("its error", console.one_line(f"{last_build['error']['code']}: {last_build['error']['message']}"))
            )
        if last_build.get("degraded") and last_build["snapshot_id"] not in {None, active}:
            rows.append(("", console.one_line(str(Degraded(**last_build["degraded"])))))
    for work, wait in answer["waits"].items():
        rows.append((f"{work} wait", console.one_line(f"since {wait['since']}: {wait['reason']}; see docs/llm.md")))
    rows.append(("builds begin", "when `myria rebuild` asks" if is_manual_on else "not by `myria rebuild`"))
    if answer["paused"]:
        rows.append(("", "not by themselves while automatic builds are paused"))
    else:
        after = f"after {inactivity['timeout_s']:g} s without an event{last_event_text}"
        rows += [
            ("", after if inactivity["enabled"] else "not after a silence"),
            ("", f"at {tail['max_unindexed_events']:,} fresh events" if tail["enabled"] else "not for a long tail"),
        ]
    return [*rows, ("embeddings", answer["embeddings"])]
