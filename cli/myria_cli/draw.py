"""Trees and spans of time, drawn for a terminal.

Lines are made one at a time, so that a tree of any size can be drawn as it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from myria.builds.browse import TreeNode
from myria.db.clock import to_datetime
from myria.log.payloads import whole_text
from myria.topics.model import level_name
from myria_cli.console import one_line, shown

LABEL_CHARACTERS = 120
SUMMARY_CHARACTERS = 150
SNIPPET_CHARACTERS = 160

LEAST_TEXT = 24
"""Columns that a tree's text keeps, however deep it is."""

_TEE, _END, _BAR, _GAP = "├─ ", "└─ ", "│  ", "   "


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a tree: its branches (`head`), those of its continuation lines (`rest`), and its text."""

    head: str
    rest: str
    text: Text

    def wrapped(self, console: Console) -> Iterator[Text]:
        """Yield the line broken to the console's width, with the tree's branches before each part."""
        width = max(LEAST_TEXT, console.width - max(cell_len(self.head), cell_len(self.rest)))
        for number, part in enumerate(self.text.wrap(console, width)):
            line = Text(self.rest if number else self.head, style="dim")
            part.rstrip()
            line.append_text(part)
            yield line


def draw(lines: Iterable[Line], console: Console) -> None:
    """Print the lines of a tree."""
    for line in lines:
        for part in line.wrapped(console):
            console.print(part, soft_wrap=True)


class Branches:
    """The lines in front of a node: one per level, open or closed."""

    def __init__(self, above: tuple[bool, ...] = ()) -> None:
        self._above = above

    def below(self, *, last: bool) -> Branches:
        """Return the branches of a child; `last` when no sibling follows it."""
        return Branches((*self._above, last))

    def head(self) -> str:
        """Return the branches before a node's first line."""
        if not self._above:
            return ""
        return self._trunk(self._above[:-1]) + (_END if self._above[-1] else _TEE)

    def rest(self, *, has_children: bool) -> str:
        """Return the branches before a node's further lines."""
        return self._trunk(self._above) + (_BAR if has_children else _GAP)

    def line(self, text: Text, *, has_children: bool) -> Line:
        """Return a node's first line."""
        return Line(self.head(), self.rest(has_children=has_children), text)

    def further(self, text: Text, *, has_children: bool) -> Line:
        """Return another line of the same node."""
        head = self.rest(has_children=has_children)
        return Line(head, head, text)

    @staticmethod
    def _trunk(levels: Sequence[bool]) -> str:
        return "".join(_GAP if last else _BAR for last in levels)


def span(first_at: int, last_at: int) -> str:
    """Return a span of time (microseconds since 1970) as one day, or as the first and the last."""
    first, last = to_datetime(first_at), to_datetime(last_at)
    # Not strftime: it writes the year 1 as `1`.
    if first.date() != last.date():
        return f"{first.date().isoformat()} – {last.date().isoformat()}"
    if (first.hour, first.minute) == (last.hour, last.minute):
        return f"{first.date().isoformat()} {first:%H:%M}"
    return f"{first.date().isoformat()} {first:%H:%M}–{last:%H:%M}"


def count(number: int, noun: str) -> str:
    """Return `1 event`, `2 events`, `12,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def topic_lines(node: TreeNode, branches: Branches, *, summaries: bool, has_children: bool) -> Iterator[Line]:
    """Yield the lines of one topic of a snapshot."""
    text = Text(one_line(node.label, LABEL_CHARACTERS), style="" if node.is_leaf else "bold")
    kind = "" if node.is_leaf else "subject, " if node.is_subject else f"{level_name(node.level)}, "
    text.append(f"  {kind}{count(node.events, 'event')}, {span(node.first_at, node.last_at)}", style="not bold dim")
    yield branches.line(text, has_children=has_children)
    if summaries and node.summary:
        yield branches.further(Text(one_line(node.summary), style="dim italic"), has_children=has_children)


def answer_lines(
    answer: Mapping[str, Any],
    *,
    summaries: bool = True,
    scores: bool = False,
    marked: frozenset[str] = frozenset(),
) -> Iterator[Line]:
    """Yield the lines of an answer's tree: topics with their spans, events with their snippets.

    Events whose source_event_key is `marked` carry a star. With `scores`, each node says how it was ranked.
    """
    stack: list[tuple[Mapping[str, Any], Branches, Any]] = [(answer["root"], Branches(), None)]
    while stack:
        node, branches, scope = stack.pop()
        children: Sequence[Mapping[str, Any]] = node.get("children") or ()
        star = node.get("source_event_key") in marked
        who = [] if scope == node["participants"] else node["participants"]
        yield from _node_lines(
            node, branches, who, summaries=summaries, scores=scores, has_children=bool(children), star=star
        )
        scope = None if node["kind"] == "root" else node["participants"]
        last = len(children) - 1
        stack += [(child, branches.below(last=at == last), scope) for at, child in reversed(list(enumerate(children)))]
    notes = [f"snapshot {answer.get('snapshot_id') or 'none yet (all events are fresh)'}"]
    if answer.get("truncated"):
        notes.append("there is more")
    if skipped := answer.get("skipped"):
        notes.append(f"{count(skipped['count'], 'event')} too large to show (their ids: --json)")
    if answer.get("degraded"):
        notes.append(f"degraded: {answer.get('degraded_note')}")
    yield Line("", "", Text(shown(" · ".join(notes)), style="dim"))


def _node_lines(
    node: Mapping[str, Any],
    branches: Branches,
    who: Sequence[str],
    *,
    summaries: bool,
    scores: bool,
    has_children: bool,
    star: bool,
) -> Iterator[Line]:
    kind = node["kind"]
    if kind == "root":
        text = Text("answer", style="bold")
        text.append("  for " + shown(", ".join(who)), style="not bold dim")
    elif kind in ("internal_topic", "subject", "leaf_topic"):
        text = Text(one_line(node["label"], LABEL_CHARACTERS), style="bold cyan")
        text.append("  " + shown(_topic_note(node, who, scores=scores)), style="not bold default dim")
    else:
        text = Text("★ " if star else "", style="bold yellow")
        text.append(_event_head(node), style="not bold default dim")
        text.append(one_line(_event_text(node), SNIPPET_CHARACTERS), style="not bold default")
        text.append("  " + _event_note(node, who, scores=scores), style="not bold default dim")
    yield branches.line(text, has_children=has_children)
    if summaries and kind in ("internal_topic", "subject", "leaf_topic") and node.get("summary"):
        summary = one_line(node["summary"], SUMMARY_CHARACTERS)
        yield branches.further(Text(summary, style="dim italic"), has_children=has_children)


def _topic_note(node: Mapping[str, Any], who: Sequence[str], *, scores: bool) -> str:
    parts = []
    counts = node.get("counts") or {}
    events = counts.get("events", node.get("events"))
    if isinstance(events, int):
        parts.append(count(events, "event"))
    first, last = node.get("first_at"), node.get("last_at")
    if first and last:
        parts.append(first[:10] if first[:10] == last[:10] else f"{first[:10]} – {last[:10]}")
    if who:
        parts.append(", ".join(who))
    if scores and node.get("score"):
        parts.append(f"score {node['score']}")
    return " · ".join(parts)


def _event_head(node: Mapping[str, Any]) -> str:
    speaker = (node.get("payload") or {}).get("speaker") or node.get("speaker")
    who = f"{one_line(str(speaker), 40)}: " if speaker else ""
    return f"{node['timestamp'][:16].replace('T', ' ')} {who}"


def _event_text(node: Mapping[str, Any]) -> str:
    snippet = node.get("snippet")
    if isinstance(snippet, str):
        return snippet
    return payload_text(node.get("payload") or {})


def payload_text(payload: Mapping[str, Any]) -> str:
    """Return what a payload says: its text with what its pictures show, or itself as JSON."""
    if isinstance(payload.get("text"), str):
        return whole_text(dict(payload))
    return json.dumps(payload, ensure_ascii=False)


def _event_note(node: Mapping[str, Any], who: Sequence[str], *, scores: bool) -> str:
    parts = [f"score {node['score']}"] if scores and node.get("score") else []
    parts.append(one_line(str(node.get("source_event_key") or node["event_id"]), 60))
    if who:
        parts.append(shown(", ".join(who)))
    if node.get("indexed") is False:
        parts.append("fresh")
    if node.get("internal"):
        parts.append("internal")
    return "[" + ", ".join(parts) + "]"
