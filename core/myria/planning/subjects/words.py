"""What a person reads about a subject: its name, whose it is and what is said of it; then its history, newest first.

From the children's renderings alone: a leaf says what was said, a division of a large subject what its leaves say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from myria.analysis.announcing import holds_later
from myria.analysis.dates import DAY_US
from myria.planning.calendar import date_text, period_text
from myria.planning.describe import LABEL_CHARACTERS, Description
from myria.planning.lines import as_many_as_fit, capitalised, clip, counted, fitting, listed, shortened
from myria.planning.model import LEAF, Node
from myria.planning.phrases import NAME_CHARACTERS
from myria.planning.subjects.sayings import Sayings, forget_sayings
from myria.planning.subjects.statements import called, forget_statements, state_of, told_by
from myria.planning.wording import conjunction_of

_LEAST_SAID = 2
"""Times that somebody says something of a subject before it is called after that person."""

_SUBJECT_CHARACTERS = 480
_GROUP_CHARACTERS = 160
"""Characters of a summary: of a subject, and of what only stands above or within one."""

_ENTRY_CHARACTERS = 60
_BEFORE = " Before: "
_IN_TIME = attrgetter("last_at", "key_timestamp", "key_digest")


def describe_subject(key: str, children: Sequence[Node]) -> Description:
    """Describe a subject from its leaves, or from the divisions that it is large enough for."""
    sayings = Sayings(children)
    name = sayings.name(key, 0)
    owner = _owner(_said_by(key, children))
    title = f"{capitalised(name)} ({owner})" if owner else capitalised(name)
    return Description(
        label=_label(title, sayings.about([name], [key])),
        summary=_history(key, children, _SUBJECT_CHARACTERS),
        metadata=_metadata(sayings, [name]),
    )


def describe_division(keys: Sequence[str], children: Sequence[Node]) -> Description:
    """Describe a part of a large subject: `keys` are the subject's own and those that all of the part share."""
    sayings = Sayings(children)
    names = [sayings.name(key, at) for at, key in enumerate(keys)]
    title = capitalised(listed(names, conjunction_of(sayings.language)))
    if len(names) == 1:
        title = f"{title} {period_text(sayings.first_at, sayings.last_at)}"
    said_by = _said_by(keys[0], children)
    return Description(
        label=_label(title, sayings.about(names, keys)),
        summary=_latest(keys, children, _GROUP_CHARACTERS)[0],
        metadata=_metadata(sayings, names, said_by),
    )


def describe_index(children: Sequence[Node]) -> Description:
    """Describe a group of subjects that stand beside each other by their keys alone."""
    sayings = Sayings(children)
    names = [children[0].metadata["names"][0], children[-1].metadata["names"][-1]]
    subjects = sum(child.units for child in children)
    head = f"{counted(subjects, 'subject')} {period_text(sayings.first_at, sayings.last_at)}"
    return Description(
        label=clip(f"Subjects from {names[0]} to {names[1]}", LABEL_CHARACTERS),
        summary=f"{head}.",
        metadata=_metadata(sayings, names),
    )


def forget_leaves() -> None:
    """Let go of what is kept of leaves while the subjects of their scope are made: a third of a builder's memory."""
    forget_sayings()
    forget_statements()


def _label(title: str, about: Sequence[str]) -> str:
    phrases = fitting(about, max(NAME_CHARACTERS, LABEL_CHARACTERS - len(title) - 2)) if about else []
    return clip(f"{title}: {listed(phrases)}" if phrases else title, LABEL_CHARACTERS)


def _said_by(key: str, children: Sequence[Node]) -> dict[str, int]:
    """Return how often each speaker says something of a subject, by the quotes of summaries; questions say nothing."""
    said: dict[str, int] = {}
    for child in children:
        if child.node_type == LEAF:
            for speaker, _ in told_by(child.summary).naming(key):
                if speaker:
                    said[speaker] = said.get(speaker, 0) + 1
        else:
            for speaker, count in child.metadata.get("said_by", ()):
                said[speaker] = said.get(speaker, 0) + count
    return said


def _owner(said_by: Mapping[str, int]) -> str:
    """Return who says most of what is said, three quarters of it or more; nobody for a subject of several people."""
    speaker = min(said_by, key=lambda name: (-said_by[name], name), default="")
    count = said_by.get(speaker, 0)
    return speaker if count >= _LEAST_SAID and count * 4 >= sum(said_by.values()) * 3 else ""


def latest_of(summary: str) -> str:
    """Return what the summary of a subject says of its latest state."""
    return summary.partition(_BEFORE)[0]


def _history(key: str, children: Sequence[Node], most: int) -> str:
    """Return the latest state, then what was before, newest first."""
    now, earlier = _latest([key], children, most)
    room = most - len(now) - len(_BEFORE) - 1
    entries = list(map(_entry, earlier))
    before_that = as_many_as_fit(entries, room) if entries and room > _ENTRY_CHARACTERS else ""
    return clip(f"{now}{_BEFORE}{before_that}.", most) if before_that else now


def _latest(keys: Sequence[str], children: Sequence[Node], most: int) -> tuple[str, list[Node]]:
    """Return the latest state that is told, of the first of some keys that it is told of; and what was before it.

    A state that was announced for a day after all that was said stands behind the one that holds until then.
    """
    newest = sorted(children, key=_IN_TIME, reverse=True)
    announced = ""
    for at, node in enumerate(newest):
        if node.node_type != LEAF:
            return clip(f"{node.summary}{announced}", most), newest[at + 1 :]
        if (state := state_of(keys, node)) is None:
            continue
        day = holds_later(state, at=node.last_at, now=newest[0].last_at)
        if day is None:
            return clip(f"{_dated(node, state, most)}{announced}", most), newest[at + 1 :]
        announced = announced or f" From {date_text(day * DAY_US)}: {_ended(state)}"
    if announced:
        return clip(announced.strip(), most), newest[1:]
    return _dated(newest[0], called(keys[0], newest[0]), most), newest[1:]


def _dated(leaf: Node, state: str, most: int) -> str:
    return clip(_ended(f"Latest, on {date_text(leaf.last_at)}: {state}"), most)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "”", "…", "!", "?")) else f"{sentence}."


def _entry(node: Node) -> str:
    if node.node_type == LEAF:
        return f"{shortened(node.label, _ENTRY_CHARACTERS)} ({date_text(node.last_at)})"
    when = period_text(node.first_at, node.last_at).removeprefix("on ").removeprefix("from ")
    # A division is called after the subject, too.
    about = node.label.partition(": ")[2]
    beside = [*node.metadata["names"][1:], *([about] if about else [])] or node.metadata["names"]
    return f"{shortened(capitalised(': '.join(beside)), _ENTRY_CHARACTERS)} ({when})"


def _metadata(sayings: Sayings, names: Sequence[str], said_by: Mapping[str, int] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "keywords": [],
        "phrases": [list(pair) for pair in sayings.phrases],
        "speakers": [list(pair) for pair in sayings.speakers],
        "hints": [],
        "language": sayings.language,
        "names": list(names),
    }
    if said_by:
        metadata["said_by"] = [list(pair) for pair in sorted(said_by.items())]
    return metadata
