"""Write answers of queries as text for a model: a line for each event and topic, never above a bound of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from myria.notes.lines import MemoryLine, memory_text
from myria.search.handles import EVENT_PREFIX, Handles
from myria.search.tree import lean_node
from myria.text.model_tokens import TokenCounter

Json = dict[str, Any]

NOTHING = "Nothing is remembered of that."
"""What every API answers as text where nothing matches a question."""

_UNBOUNDED = 1 << 40


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownAnswer:
    """An answer to be sent: its structured content, and its text where that is not just the content as JSON.

    `text_for_all` is false where the caller did not ask for this text: then clients that read no structured content get
    the JSON.
    """

    content: Json
    text: str | None = None
    text_for_all: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerText:
    """Writes full answers of query_event_nodes and query_references as text.

    `first` says which matches come first: the best, newest or oldest. `budget` is in tokens, None for no bound; `full`
    shows more of each event. An event with too little room is cut to the passage that has most of the words `sought`.
    """

    handles: Handles
    counter: TokenCounter
    budget: int | None
    first: str = "best"
    full: bool = False
    sought: frozenset[str] = frozenset()

    def fits(self, answer: Json) -> bool:
        """Tell whether the text shows every node of an answer, the last one perhaps shortened."""
        return self._written(answer) is not None

    def text(self, answer: Json) -> str:
        """Return the text of an answer that `fits`, else an empty text."""
        return self._written(answer) or ""

    def _written(self, answer: Json) -> str | None:
        """Return the whole text of an answer; None where the budget has no room for all of its nodes."""
        lines = list(self._lines(answer["root"]))
        remarks = "\n".join(_remarks(answer, is_empty=not lines))
        budget = _UNBOUNDED if self.budget is None else self.budget
        if not lines:
            return remarks if self.counter.count(remarks) <= budget else None
        # Within a topic the lines stand as they do in the tree, by no one order.
        has_topics = any("children" in child for child in answer["root"]["children"])
        order = f"{self.first} topic first" if has_topics else f"{self.first} first"
        room = budget - self.counter.count(f"\n{remarks}") if remarks else budget
        while room > 0:
            memories = memory_text(lines, self.counter, room, self.sought, order=order)
            if memories.shown < len(lines):
                return None
            text = f"{memories.text}\n{remarks}" if remarks else memories.text
            excess = self.counter.count(text) - budget
            if excess <= 0:
                return text
            room -= excess  # two texts may cost more together than each by itself
        return None

    def _lines(self, node: Json) -> Iterator[MemoryLine]:
        for child in node["children"]:
            lean = lean_node(child)
            if child["kind"] in ("event", "event_ref"):
                yield MemoryLine(
                    date=child["timestamp"][:10],
                    clock=child["timestamp"][11:16],
                    speaker=lean.get("speaker"),
                    text=lean["text"],
                    handle=EVENT_PREFIX + self.handles.of(child["event_seq"]),
                    marks=tuple(self._marks(child)),
                )
            else:
                yield MemoryLine(
                    date=f"Topic of {_span(child)}",
                    speaker=None,
                    text=f"{child['label']}. {child['summary']}",
                    handle=child["topic_id"],
                )
                yield from self._lines(child)

    def _marks(self, event: Json) -> Iterator[str]:
        if event.get("superseded"):
            yield "superseded"
        if event.get("alike"):
            yield f"{event['alike']} more alike"
        if self.full:
            yield f"{event['event_id']}, {event['channel']}, {', '.join(event['participants'])}, {event['score']}"


def _remarks(answer: Json, *, is_empty: bool) -> Iterator[str]:
    if is_empty and not answer.get("skipped"):
        yield NOTHING
    yield from spelling_remarks(answer.get("other_spellings", {}))
    if answer["degraded"]:
        yield answer["degraded_note"]
    if answer.get("skipped"):
        yield f"{answer['skipped']['count']} more had no room."
    if answer["next_cursor"] is not None:
        yield f"More follow with cursor {answer['next_cursor']}"


def spelling_remarks(spellings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each name under which nothing is visible, while other spellings of it have events."""
    for name, others in spellings.items():
        yield f"Nothing is visible to {name}; try {' or '.join(others)}."


def _span(topic: Json) -> str:
    first, last = topic["first_at"][:10], topic["last_at"][:10]
    return first if first == last else f"{first} to {last}"
