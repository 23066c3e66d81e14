"""`myria query`: ask as somebody, see the answer's tree."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer
from rich.text import Text

from myria.errors import InvalidArgument
from myria_cli.commands.events import PANEL
from myria_cli.draw import answer_tree, expected_text
from myria_cli.options import Options, command
from myria_cli.place import opened

_filter = partial(typer.Option, rich_help_panel="Filters (they exclude)")
_shape = partial(typer.Option, rich_help_panel="Shape of the answer")

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "query")
async def query(
    options: Options,
    *,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What to look for; left out: the most recent.")
    ] = None,
    as_: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Who asks; repeat for several. Only what all of them may see is answered. Required.",
        ),
    ] = None,
    hint: Annotated[list[str] | None, _shape(metavar="TOPIC[=0..1]", help="A topic to prefer; never excludes.")] = None,
    context: Annotated[str | None, _filter(help="Only this context_id.")] = None,
    channel: Annotated[str | None, _filter(help="Only this channel.")] = None,
    type_: Annotated[list[str] | None, _filter("--type", help="Only this event type; repeat for several.")] = None,
    since: Annotated[str | None, _filter(help="Only at or after this RFC 3339 time.")] = None,
    until: Annotated[str | None, _filter(help="Only before this RFC 3339 time.")] = None,
    internal: Annotated[bool, _filter("--internal", help="Also internal events.")] = False,
    events: Annotated[
        bool, _shape("--events", help="Plain events (query_event_nodes) instead of topics (query_references).")
    ] = False,
    limit: Annotated[int | None, _shape(help="With --events: how many, 1..200.")] = None,
    max_nodes: Annotated[int | None, _shape(help="Topics and events in all, 1..500.")] = None,
    max_depth: Annotated[int | None, _shape(help="Levels below the root.")] = None,
    root: Annotated[str | None, _shape(help="Only under this topic_id or node_id.")] = None,
    max_tokens: Annotated[int | None, _shape(help="Bound on the answer's size.")] = None,
    payload: Annotated[bool, _shape("--payload", help="Whole payloads instead of snippets.")] = False,
    scores: Annotated[bool, _shape("--scores", help="Show how high each node was ranked.")] = False,
    explain: Annotated[bool, _shape("--explain", help="Show what each signal gave to each score.")] = False,
    expect: Annotated[
        str | None,
        _shape(metavar="ID", help="Id or handle of an event or note: say its place, or why it is not shown."),
    ] = None,
    mode: Annotated[
        str | None, _shape(help="Whether a language model looks further: auto, llm, deterministic.")
    ] = None,
    order: Annotated[str | None, _shape(help="relevance, newest or oldest.")] = None,
    now: Annotated[str | None, _shape(help="What 'yesterday' counts from.")] = None,
    cursor: Annotated[str | None, _shape(help="next_cursor of the answer before.")] = None,
) -> None:
    """Ask the memory as somebody, and see the tree of the answer.

    Examples:
        myria query "why did we drop Kickstarter?" --as mika
        myria query "heater" --as jonas --events --limit 5
        myria query --as ines --order newest --since 2026-03-01T00:00:00Z
        myria query "soak test" --as jonas --json | jq .root
        myria query "soak test" --as jonas --events --explain --expect e:481920375
    """
    from myria.access.principal import local_principal
    from myria.memory import Memory
    from myria.notes.answertext import NOTHING
    from myria_server.api.core.inputs import EventNodesInput, ReferencesInput, read

    if not as_:
        raise InvalidArgument("say who asks: --as NAME (repeat it for several)", field="participants")
    tree_options = {
        "max_nodes": max_nodes,
        "max_depth": max_depth,
        "root": root,
        "mode": mode,
        "payload": payload or None,
    }
    if not events and limit is not None:
        raise InvalidArgument("--limit goes with --events; a tree takes --max-nodes", field="limit")
    if events and (given_names := [name for name, value in tree_options.items() if value is not None]):
        raise InvalidArgument(f"--{given_names[0].replace('_', '-')} does not go with --events", field=given_names[0])
    arguments: dict[str, Any] = {
        "participants": as_,
        "query": text,
        "topic_hints": [_hint(hint_text) for hint_text in hint or ()],
        "context_id": context,
        "channel": channel,
        "types": type_,
        "since": since,
        "until": until,
        "include_internal": internal,
        "max_tokens": max_tokens,
        "order": order,
        "now": now,
        "cursor": cursor,
        "explain": explain or expect is not None,
    }
    settings = options.settings()
    principal = local_principal(options.tenant, actor="cli")
    async with opened(options, settings) as place, Memory(place.serving, settings) as memory:
        if expect is not None:
            arguments["expected"] = await memory.expected_event_id(options.tenant, expect)
        if events:
            event_query = read(EventNodesInput, {**arguments, "limit": limit}).query_value(principal)
            answer = await memory.retrieval.query_event_nodes(options.tenant, event_query)
        else:
            shape = {name: value for name, value in tree_options.items() if name != "payload"}
            arguments |= shape | {"include_payload": payload}
            answer = await memory.retrieval.query_references(
                options.tenant, read(ReferencesInput, arguments).query_value(principal)
            )
    tree = (
        answer_tree(answer, scores=scores or explain or expect is not None)
        if answer["root"]["children"]
        else Text(NOTHING)
    )
    more = (f"--cursor {answer['next_cursor']}", "dim") if answer.get("next_cursor") else None
    options.answer(answer, tree, more, expected_text(answer["expected"]) if answer.get("expected") else None)


def _hint(text: str) -> dict[str, Any]:
    """Parse TOPIC or TOPIC=0..1 into a topic hint, whose confidence is 1 by default."""
    name, separator, weight = text.rpartition("=")
    if not separator:
        return {"hint": text, "confidence": 1.0}
    try:
        return {"hint": name, "confidence": float(weight)}
    except ValueError as error:
        raise InvalidArgument(
            f"--hint {text}: what follows '=' must be a number from 0 to 1", field="topic_hints"
        ) from error
