"""Trees and spans of time as a terminal shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from myria.db.clock import to_datetime
from myria.log.payloads import whole_text
from myria.search.reasons import SIGNALS, what_became
from myria.topics.model import level_name
from myria_cli.console import count, one_line, shown

if TYPE_CHECKING:
    from myria.builds.browse import TreeNode

LABEL_CHARACTERS = 120
SUMMARY_CHARACTERS = 150
SNIPPET_CHARACTERS = 160

_TOPICS = ("internal_topic", "subject", "leaf_topic")


def span(first_at: int, last_at: int) -> str:
    """Return a span of time (microseconds since 1970) as one day, or as the first and the last."""
    first, last = to_datetime(first_at), to_datetime(last_at)
    # Not strftime: it writes the year 1 as `1`.
    if first.date() != last.date():
        return f"{first.date().isoformat()} – {last.date().isoformat()}"
    if (first.hour, first.minute) == (last.hour, last.minute):
        return f"{first.date().isoformat()} {first:%H:%M}"
    return f"{first.date().isoformat()} {first:%H:%M}–{last:%H:%M}"


def topic_text(node: TreeNode, *, summaries: bool) -> RenderableType:
    """Return what a tree shows of one topic of a snapshot."""
    kind = "" if node.is_leaf else "subject, " if node.is_subject else f"{level_name(node.level)}, "
    text = Text.assemble(
        (one_line(node.label, LABEL_CHARACTERS), "" if node.is_leaf else "bold"),
        (f"  {kind}{count(node.events, 'event')}, {span(node.first_at, node.last_at)}", "dim"),
    )
    if summaries and node.summary:
        text.append("\n" + one_line(node.summary), style="dim italic")
    return text


def answer_tree(
    answer: Mapping[str, Any], *, scores: bool = False, marked: frozenset[str] = frozenset()
) -> RenderableType:
    """Return an answer's tree: topics with their spans and summaries, events with their snippets.

    Args:
        scores: whether each node says how it was ranked.
        marked: source keys of events that carry a star.
    """
    root = answer["root"]
    tree = Tree(
        Text.assemble(("answer", "bold"), ("  for " + shown(", ".join(root["participants"])), "dim")),
        guide_style="dim",
    )
    stack = [(tree, child, None) for child in reversed(root.get("children") or ())]
    while stack:
        parent, node, scope = stack.pop()
        new_participants = [] if scope == node["participants"] else node["participants"]
        star = node.get("source_event_key") in marked
        branch = parent.add(_node_text(node, new_participants, scores=scores, star=star))
        stack += [(branch, child, node["participants"]) for child in reversed(node.get("children") or ())]
    return Group(tree, _notes(answer))


def _notes(answer: Mapping[str, Any]) -> Text:
    """Return the line below an answer: its snapshot, and what is missing from it."""
    notes = [f"snapshot {answer.get('snapshot_id') or 'none yet (all events are fresh)'}"]
    if answer.get("truncated"):
        notes.append("there is more")
    if skipped := answer.get("skipped"):
        notes.append(f"{count(skipped['count'], 'event')} too large to show (their ids: --json)")
    if answer.get("degraded"):
        notes.append(f"degraded: {answer.get('degraded_note')}")
    return Text(shown(" · ".join(notes)), style="dim")


def _node_text(node: Mapping[str, Any], who: Sequence[str], *, scores: bool, star: bool) -> Text:
    """Return the text of one node of an answer; `who` are its participants where they differ from the parent's."""
    score = [f"score {node['score']}"] if scores and node.get("score") else []
    score += [signals_text(node["signals"])] if node.get("signals") else []
    if node["kind"] in _TOPICS:
        text = Text.assemble(
            (one_line(node["label"], LABEL_CHARACTERS), "bold cyan"),
            ("  " + shown(" · ".join([*_extent(node), *([", ".join(who)] if who else []), *score])), "dim"),
        )
        if node.get("summary"):
            text.append("\n" + one_line(node["summary"], SUMMARY_CHARACTERS), style="dim italic")
        return text
    speaker = (node.get("payload") or {}).get("speaker") or node.get("speaker")
    notes = [*score, one_line(str(node.get("source_event_key") or node["event_id"]), 60)]
    notes += [shown(", ".join(who))] if who else []
    notes += ["fresh"] if node.get("indexed") is False else []
    notes += ["internal"] if node.get("internal") else []
    said = f"{node['timestamp'][:16].replace('T', ' ')} " + (f"{one_line(str(speaker), 40)}: " if speaker else "")
    snippet = node.get("snippet")
    words = snippet if isinstance(snippet, str) else payload_text(node.get("payload") or {})
    return Text.assemble(
        ("★ " if star else "", "bold yellow"),
        (said, "dim"),
        one_line(words, SNIPPET_CHARACTERS),
        (f"  [{', '.join(notes)}]", "dim"),
    )


def signals_text(signals: Mapping[str, int]) -> str:
    """Return what each signal gave to a score, the most first."""
    ordered = sorted(signals.items(), key=lambda item: -abs(item[1]))
    return ", ".join(f"{SIGNALS.get(signal, signal)} {share:+,}" for signal, share in ordered)


def expected_text(expected: Mapping[str, Any]) -> Text:
    """Return what became of an event that was expected."""
    place = f" (place {expected['place']})" if expected["place"] else ""
    text = Text.assemble((f"{expected['event_id']}{place}: {what_became(expected)}", "bold"))
    if expected["signals"]:
        text.append(f"  [score {expected['score']}, {signals_text(expected['signals'])}]", style="dim")
    return text


def _extent(node: Mapping[str, Any]) -> list[str]:
    """Return how many events a topic has, and of which days."""
    events = (node.get("counts") or {}).get("events", node.get("events"))
    parts = [count(events, "event")] if isinstance(events, int) else []
    first, last = node.get("first_at"), node.get("last_at")
    if first and last:
        parts.append(first[:10] if first[:10] == last[:10] else f"{first[:10]} – {last[:10]}")
    return parts


def payload_text(payload: Mapping[str, Any]) -> str:
    """Return what a payload says: its text with what its pictures show, or itself as JSON."""
    if isinstance(payload.get("text"), str):
        return whole_text(dict(payload))
    return json.dumps(payload, ensure_ascii=False)
