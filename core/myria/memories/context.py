"""The memories of a session as markdown for a model, in the form of Memtrace's contract. Pure.

What was kept is data: white space in it is one space, so no memory can look like a heading or a line of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from myria.analysis.tokens import counted_surfaces
from myria.memories.model import StoredMemory
from myria.store.clock import to_rfc3339

MOST_SHOWN = 100
"""Memories that a context is made of, the newest ones."""

ERROR = "error"
_SHOWN_BYTES = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """A context as text, and how many memories it shows."""

    text: str
    memories: int


def session_context(
    session_id: str,
    memories: Sequence[StoredMemory],
    *,
    query: str | None = None,
    max_tokens: int | None = None,
    count: Callable[[str], int] | None = None,
) -> SessionContext:
    """Return memories as markdown, newest first, in sections by what they are.

    Args:
        memories: newest first.
        query: where not all fit, those with the most of its words are shown, of equal ones the newer.
        max_tokens: bound of the text; not even its heading is shown where that costs more.
        count: counts the tokens of a text; needed for the bound.
    """
    chosen = list(memories)
    if max_tokens is None or count is None:
        return SessionContext(text=_markdown(session_id, chosen), memories=len(chosen))
    ranked = list(range(len(chosen)))
    if query:
        wanted = _words(query)
        ranked.sort(key=lambda place: -len(wanted & _words(chosen[place].draft.content)))

    def rendered(most: int) -> str:
        return _markdown(session_id, [chosen[place] for place in sorted(ranked[:most])])

    fits, beyond = -1, len(chosen) + 1
    while fits + 1 < beyond:
        tried = (fits + beyond) // 2
        if count(rendered(tried)) <= max_tokens:
            fits = tried
        else:
            beyond = tried
    return SessionContext(text="" if fits < 0 else rendered(fits), memories=max(0, fits))


def _words(text: str) -> frozenset[str]:
    return frozenset(term for _, term, _ in counted_surfaces(text))


def _markdown(session_id: str, memories: Sequence[StoredMemory]) -> str:
    sections: dict[str, list[str]] = {"Recent Actions": [], "Decisions Made": [], "Errors": [], "Other": []}
    for memory in memories:
        draft = memory.draft
        line = f"- [{to_rfc3339(memory.at)}] {draft.event_type}: {_shortened(draft.content)}"
        section = {"episodic": "Recent Actions", "decision": "Decisions Made"}.get(draft.memory_type, "Other")
        sections["Errors" if draft.event_type == ERROR else section].append(line)
    parts = [
        f"### {name} ({len(lines)})\n" + "".join(line + "\n" for line in lines)
        for name, lines in sections.items()
        if lines
    ]
    return f"## Session Context ({session_id})\n\n" + "\n".join(parts)


def _shortened(content: str) -> str:
    """Return a text on one line, cut where it is longer than 80 bytes, never within a character."""
    line = " ".join(content.split())
    raw = line.encode()
    return line if len(raw) <= _SHOWN_BYTES else raw[:_SHOWN_BYTES].decode(errors="ignore") + "..."
