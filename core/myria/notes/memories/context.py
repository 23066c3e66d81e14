"""The memories of a session as markdown for a model, in the form of Memtrace's contract. Pure.

A memory's text is data. Any white space in it becomes one space, so no memory can look like a heading or like a line
of another one; markup is escaped, so that it loads no image, makes no link and no element where the markdown is shown.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from myria.db.clock import to_rfc3339
from myria.notes.lines import on_one_line
from myria.notes.memories.model import StoredMemory
from myria.text.passages import best_span
from myria.text.restating import told_once

MOST_SHOWN = 100
"""Memories that a context is made of at most: the newest, or those most relevant to a question."""

MOST_TOPICS = 20
"""Topics that say what further memories are about."""

ERROR = "error"
_SHOWN_BYTES = 80
_TOPIC_BYTES = 240
_ESCAPED = str.maketrans({"\\": "\\\\", "[": "\\[", "<": "&lt;"})
_BLOCK = re.compile(r"^(?:\d{1,9}(?=[.)])|(?=[#>+*~-]))")
"""Where a line would begin a heading, a list or the like, behind its number."""
_TOPICS_SHARE = 3
"""Where there is a bound, topics take a third of it at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionContext:
    """A context as text, and how many memories it shows. `is_empty` says that there were no memories and no topics."""

    text: str
    memories: int
    is_empty: bool = False


def session_context(
    session_id: str,
    memories: Sequence[StoredMemory],
    *,
    topics: Sequence[str] = (),
    max_tokens: int | None = None,
    count: Callable[[str], int] | None = None,
    sought: frozenset[str] = frozenset(),
) -> SessionContext:
    """Return memories as markdown, newest first, in sections by their types, and then the topics of further ones.

    Args:
        memories: the most important first: where not all fit, the last are left out.
        topics: topics of further memories, the most important first.
        max_tokens: the most tokens that the text may cost; its heading is not shown alone where nothing else fits.
            Within a bound, one memory stands for all that only repeat its text.
        count: counts the tokens of a text; needed for the bound.
        sought: roots of the question's words: a long memory is cut to the passage that has most of them.
    """
    alike: list[int] = [0] * len(memories)
    chosen = list(memories)
    if max_tokens is not None:
        distinct = told_once(
            chosen,
            said=lambda memory: ((memory.draft.agent_id, memory.draft.event_type), memory.draft.content),
            age=lambda memory: (memory.at, memory.number),
        )
        chosen, alike = [memory for memory, _ in distinct], [repeats for _, repeats in distinct]
    by_time = sorted(range(len(chosen)), key=lambda place: (chosen[place].at, chosen[place].number), reverse=True)

    def render(shown_memories: int, shown_topics: int) -> str:
        lines = [(chosen[place], alike[place]) for place in by_time if place < shown_memories]
        return _markdown(session_id, lines, topics[:shown_topics], sought)

    is_empty = not chosen and not topics
    if max_tokens is None or count is None:
        return SessionContext(text=render(len(chosen), len(topics)), memories=len(chosen), is_empty=is_empty)
    shown_topics = max(
        0, _largest_fitting(len(topics), lambda most: count(render(0, most)) <= max_tokens // _TOPICS_SHARE)
    )
    shown_memories = _largest_fitting(len(chosen), lambda most: count(render(most, shown_topics)) <= max_tokens)
    is_bare = shown_memories <= 0 and shown_topics == 0 and not is_empty
    text = "" if shown_memories < 0 or is_bare else render(shown_memories, shown_topics)
    return SessionContext(text=text, memories=max(0, shown_memories), is_empty=is_empty)


def _largest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, where every smaller one does, too; -1 where none fits."""
    return bisect_left(range(most + 1), True, key=lambda number: not fits(number)) - 1


def _markdown(
    session_id: str, memories: Sequence[tuple[StoredMemory, int]], topics: Sequence[str], sought: frozenset[str]
) -> str:
    sections: dict[str, list[str]] = {"Recent Actions": [], "Decisions Made": [], "Errors": [], "Other": []}
    for memory, alike in memories:
        draft = memory.draft
        line = f"- [{to_rfc3339(memory.at)}] {draft.event_type}: {_shortened(draft.content, sought)}"
        line += f" ({alike} more alike)" if alike else ""
        section = {"episodic": "Recent Actions", "decision": "Decisions Made"}.get(draft.memory_type, "Other")
        sections["Errors" if draft.event_type == ERROR else section].append(line)
    sections["Topics"] = [f"- {_shortened(topic, sought, _TOPIC_BYTES)}" for topic in topics]
    parts = [
        f"### {name} ({len(lines)})\n" + "".join(line + "\n" for line in lines)
        for name, lines in sections.items()
        if lines
    ]
    return f"## Session Context ({session_id})\n\n" + "\n".join(parts)


def _shortened(content: str, sought: frozenset[str], most: int = _SHOWN_BYTES) -> str:
    """Return a text as `_plain` has it, of at most `most` bytes and whole characters.

    A longer text is cut to the passage that has most of the words sought.
    """
    line = on_one_line(content)
    if len(line.encode()) <= most:
        return _plain(line)
    # A span is chosen by characters: as many as the text's first `most` bytes have. Then it is cut to bytes.
    start, _ = best_span(line, sought, len(line.encode()[:most].decode(errors="ignore"))) if sought else (0, 0)
    encoded = line[start:].encode()
    shown = encoded[:most].decode(errors="ignore")
    return _plain(f"{'...' if start else ''}{shown}{'...' if len(encoded) > most else ''}")


def _plain(line: str) -> str:
    """Return a line as markdown that shows what it says and does nothing."""
    return _BLOCK.sub(r"\g<0>\\", line.translate(_ESCAPED), count=1)
