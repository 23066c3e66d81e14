"""Recalled memories as text by subject: what several of them are about is said once, and they stand beneath it in time:
talk as it was said, kept statements newest first.

A heading costs tokens, and what it makes superfluous pays for it: dates that are those of the line above, and topics of
the subject's own. Where that does not pay, lines stand as they were ranked: no text costs more for its subjects.
"""

from __future__ import annotations

from collections.abc import Sequence

from myria.notes.fragments import Fragment
from myria.notes.lines import MemoryText, fenced, fenced_cost, fitting_lines, on_one_line
from myria.search.found import FoundSubject
from myria.text.model_tokens import TokenCounter

_LEAST = 2
"""Memories of a subject that are shown, from which on it is named."""

_NONE = -1
"""Stands for no subject."""

_DATE = len("2026-02-24")
_COMPARED = 40
"""Characters by which the latest state is known among the memories beneath a subject."""


def text_by_subject(
    fragments: Sequence[Fragment],
    subjects: Sequence[FoundSubject],
    counter: TokenCounter,
    budget: int,
    sought: frozenset[str] = frozenset(),
) -> MemoryText:
    """Return the memories that fit into a budget by rank, those of one subject together, for no more tokens."""
    written, tokens = fitting_lines(fragments, counter, budget, sought)
    shown = fragments[: len(written)]
    for has_state in (True, False):
        lines = _grouped(shown, written, subjects, has_state=has_state)
        if lines is None:
            break
        cost = fenced_cost(lines, counter)
        if cost <= tokens:
            return MemoryText(text=fenced(lines), shown=len(written), tokens=cost)
    return MemoryText(text=fenced(written), shown=len(written), tokens=tokens)


def _grouped(
    fragments: Sequence[Fragment], written: Sequence[str], subjects: Sequence[FoundSubject], *, has_state: bool
) -> list[str] | None:
    """Return lines by subject, None where no subject has enough of them."""
    subject_of: dict[int, int] = {}
    for number, subject in enumerate(subjects):
        of_it = [at for at, fragment in enumerate(fragments) if _belongs(fragment, subject)]
        if sum(fragments[at].topic_id is None for at in of_it) >= _LEAST:
            subject_of |= dict.fromkeys(of_it, number)
    if not subject_of:
        return None
    lines: list[str] = []
    told: set[int] = set()
    was_in_group = False
    for at, line in enumerate(written):
        number = subject_of.get(at, _NONE)
        if number == _NONE:
            if was_in_group:
                lines.append("")
            lines.append(line)
        elif number not in told:
            told.add(number)
            if lines and lines[-1] != "":
                lines.append("")
            beneath = [place for place, other in subject_of.items() if other == number]
            lines += _group(fragments, written, beneath, subjects[number], has_state=has_state)
        else:
            continue
        was_in_group = number != _NONE
    return lines


def _belongs(fragment: Fragment, subject: FoundSubject) -> bool:
    if fragment.topic_id is not None:
        return fragment.topic_id in subject.topic_ids
    return fragment.event_seq in subject.event_seqs


def _group(
    fragments: Sequence[Fragment],
    written: Sequence[str],
    beneath: Sequence[int],
    subject: FoundSubject,
    *,
    has_state: bool,
) -> list[str]:
    """Return the heading of a subject and its memories in time; topics of its own leaves say nothing more.

    Talk stands in the order in which it was said. Where there are kept statements the newest is first, as what holds
    now, and each has its date.
    """
    has_notes = any(fragments[at].note_id is not None for at in beneath)
    memories = sorted(
        (at for at in beneath if fragments[at].topic_id is None),
        key=lambda at: (fragments[at].at, fragments[at].event_seq),
        reverse=has_notes,
    )
    heading = on_one_line(subject.label)
    if has_state and not any(_tells(fragments[at], subject.latest) for at in memories):
        heading = f"{heading}. {on_one_line(subject.latest)}"
    lines = [f"# {heading}"]
    date = ""
    for at in memories:
        line = written[at]
        lines.append(line[_DATE:].removeprefix(":").lstrip() if line[:_DATE] == date else line)
        date = "" if has_notes else line[:_DATE]
    return lines


def _tells(fragment: Fragment, latest: str) -> bool:
    """Tell whether a memory says the latest state itself."""
    _, _, quoted = latest.partition("“")
    said = quoted.rstrip("”.…")[:_COMPARED]
    return bool(said) and said in on_one_line(fragment.text)
