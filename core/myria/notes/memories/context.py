"""The memories of a session as markdown for a model, in the form of Memtrace's contract. Pure.

What was kept is data: white space in it is one space, so no memory can look like a heading or a line of another, and
markup is escaped, so it loads no image, links nowhere and is no element where the markdown is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from myria.db.clock import to_rfc3339
from myria.notes.lines import on_one_line
from myria.notes.memories.model import StoredMemory
from myria.text.passages import best_span
from myria.text.restating import told_once

MOST_SHOWN = 100
"""Memories that a context is made of: the newest ones, or those that are most about a question."""

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
    """A context as text, and how many memories it shows. `is_empty`: there was nothing to show, however much room."""

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
    """Return memories as markdown, newest first, in sections by what they are, and then topics of what is not shown.

    Args:
        memories: those that matter most first: where not all fit, the last are left out.
        topics: what further memories are about, what matters most first.
        max_tokens: bound of the text; its heading is not shown alone where nothing else fits. Within it a memory stands
            for those that only say the same again.
        count: counts the tokens of a text; needed for the bound.
        sought: what is looked for: a long memory is cut to the passage that has most of it.
    """
    alike: list[int] = [0] * len(memories)
    chosen = list(memories)
    if max_tokens is not None:
        told = told_once(
            chosen,
            said=lambda memory: ((memory.draft.agent_id, memory.draft.event_type), memory.draft.content),
            age=lambda memory: (memory.at, memory.number),
        )
        chosen, alike = [memory for memory, _ in told], [others for _, others in told]
    by_time = sorted(range(len(chosen)), key=lambda place: (chosen[place].at, chosen[place].number), reverse=True)

    def rendered(shown: int, about: int) -> str:
        lines = [(chosen[place], alike[place]) for place in by_time if place < shown]
        return _markdown(session_id, lines, topics[:about], sought)

    is_empty = not chosen and not topics
    if max_tokens is None or count is None:
        return SessionContext(text=rendered(len(chosen), len(topics)), memories=len(chosen), is_empty=is_empty)
    about = max(0, _most(len(topics), lambda most: count(rendered(0, most)) <= max_tokens // _TOPICS_SHARE))
    shown = _most(len(chosen), lambda most: count(rendered(most, about)) <= max_tokens)
    is_bare = shown <= 0 and about == 0 and not is_empty
    text = "" if shown < 0 or is_bare else rendered(shown, about)
    return SessionContext(text=text, memories=max(0, shown), is_empty=is_empty)


def _most(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, where every smaller one fits, too; -1 where none does."""
    good, beyond = -1, most + 1
    while good + 1 < beyond:
        tried = (good + beyond) // 2
        if fits(tried):
            good = tried
        else:
            beyond = tried
    return good


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
    """Return a text as `_plain` has it, cut where it is longer than so many bytes, never within a character, to the
    passage that has most of what is sought."""
    line = on_one_line(content)
    if len(line.encode()) <= most:
        return _plain(line)
    # As many characters as its beginning has in so many bytes; then bytes decide.
    start, _ = best_span(line, sought, len(line.encode()[:most].decode(errors="ignore"))) if sought else (0, 0)
    raw = line[start:].encode()
    shown = raw[:most].decode(errors="ignore")
    return _plain(f"{'...' if start else ''}{shown}{'...' if len(raw) > most else ''}")


def _plain(line: str) -> str:
    """Return a line as markdown that shows what it says and does nothing."""
    return _BLOCK.sub(r"\g<0>\\", line.translate(_ESCAPED), count=1)
