"""What a person reads about a subject: its name and what is said of it, then its history, the latest state first.

From the children's renderings alone: a leaf says what was said, a division of a large subject what its leaves say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from myria.analysis import terms
from myria.analysis.kinds import kind_name, kinds_of
from myria.planning.calendar import date_text, period_text
from myria.planning.describe import LABEL_CHARACTERS, Description, Merged
from myria.planning.lines import as_many_as_fit, capitalised, clip, counted, distinct, fitting, listed, shortened
from myria.planning.model import LEAF, Node, Outline
from myria.planning.phrases import NAME_CHARACTERS, key_of

_PHRASES = 2
_KEPT = {"keywords": 0, "phrases": 3, "speakers": 3, "hints": 2}
"""What the metadata keep: what nodes above are described from, and no more. There may be as many subjects as leaves."""

_SUBJECT_CHARACTERS = 480
_GROUP_CHARACTERS = 240
"""Characters of a summary: of a subject, and of what only stands above or within one."""

_STATE_CHARACTERS = 200
_ENTRY_CHARACTERS = 60
_BEFORE = " Before: "
_QUOTE = re.compile("(?:(?<=[.!?…”] )[^“”.!?:]{1,40}: )?“[^“”]+”")


def describe_subject(key: str, children: Sequence[Node]) -> Description:
    """Describe a subject from its leaves, or from the divisions that it is large enough for."""
    merged = Merged([Outline.of(child) for child in children])
    name = _name(key, 0, children)
    about = _about(merged, [key])
    return Description(
        label=_label(capitalised(name), about),
        summary=_history(key, children, _SUBJECT_CHARACTERS),
        metadata=_metadata(merged, [name]),
    )


def describe_division(keys: Sequence[str], children: Sequence[Node]) -> Description:
    """Describe a part of a large subject: `keys` are the subject's own and those that all of the part share."""
    merged = Merged([Outline.of(child) for child in children])
    names = [_name(key, at, children) for at, key in enumerate(keys)]
    title = capitalised(listed(names, merged.conjunction))
    if len(names) == 1:
        title = f"{title} {period_text(merged.first_at, merged.last_at)}"
    return Description(
        label=_label(title, _about(merged, keys)),
        summary=_history(keys[-1], children, _GROUP_CHARACTERS),
        metadata=_metadata(merged, names),
    )


def describe_index(children: Sequence[Node]) -> Description:
    """Describe a group of subjects that stand beside each other by their keys alone."""
    merged = Merged([Outline.of(child) for child in children])
    names = [children[0].metadata["names"][0], children[-1].metadata["names"][-1]]
    subjects = sum(child.units for child in children)
    head = f"{counted(subjects, 'subject')} {period_text(merged.first_at, merged.last_at)}"
    room = _GROUP_CHARACTERS - len(head) - 3
    titles = distinct(name for child in children for name in child.metadata["names"])
    return Description(
        label=clip(f"Subjects from {names[0]} to {names[1]}", LABEL_CHARACTERS),
        summary=clip(f"{head}: {as_many_as_fit(titles, room)}.", _GROUP_CHARACTERS),
        metadata=_metadata(merged, names),
    )


def _label(title: str, about: Sequence[str]) -> str:
    phrases = fitting(about, max(NAME_CHARACTERS, LABEL_CHARACTERS - len(title) - 2)) if about else []
    return clip(f"{title}: {listed(phrases)}" if phrases else title, LABEL_CHARACTERS)


def _about(merged: Merged, keys: Iterable[str]) -> list[str]:
    """Return the best phrases beside the keys themselves."""
    taken = {term for key in keys for term in key.split(" ")}
    return [phrase for phrase, _ in merged.phrases if not taken.intersection(key_of(phrase))][:_PHRASES]


def _name(key: str, place: int, children: Sequence[Node]) -> str:
    """Return a key as people said it; `place` is that of the key among those of a division."""
    kind = kind_name(key)
    if kind is not None:
        return kind
    weights: dict[str, int] = {}
    for child in children:
        if child.node_type != LEAF:
            names = child.metadata["names"]
            if place < len(names):
                weights[names[place]] = weights.get(names[place], 0) + child.leaves
            continue
        for name, weight in (*child.metadata["phrases"], *child.metadata["hints"], *child.metadata["keywords"]):
            if " ".join(key_of(name)) == key:
                weights[name] = weights.get(name, 0) + weight
    return min(weights, key=lambda name: (-weights[name], name)) if weights else key


def _history(key: str, children: Sequence[Node], most: int) -> str:
    """Return the latest state, then what was before, newest first."""
    latest, *before = sorted(children, key=lambda child: (child.last_at, child.key), reverse=True)
    if latest.node_type == LEAF:
        now = f"Latest, on {date_text(latest.last_at)}: {_state(key, latest)}"
        now = now if now.endswith((".", "”", "…", "!", "?")) else f"{now}."
    else:
        now = latest.summary.partition(_BEFORE)[0]
    now = clip(now, most)
    room = most - len(now) - len(_BEFORE) - 1
    entries = [_entry(child) for child in before]
    before_that = as_many_as_fit(entries, room) if room > _ENTRY_CHARACTERS else ""
    return clip(f"{now}{_BEFORE}{before_that}.", most) if before_that else now


def _state(key: str, leaf: Node) -> str:
    """Return the sentence of a leaf that says a key or names something of its kind, else what the leaf is called."""
    wanted = set(key.split(" "))
    for quote in _QUOTE.findall(leaf.summary):
        if any(term in wanted or key in kinds_of(term) for term in terms(quote)):
            return clip(quote, _STATE_CHARACTERS)
    return clip(leaf.label, _STATE_CHARACTERS)


def _entry(node: Node) -> str:
    if node.node_type == LEAF:
        return f"{shortened(node.label, _ENTRY_CHARACTERS)} ({date_text(node.last_at)})"
    when = period_text(node.first_at, node.last_at).removeprefix("on ").removeprefix("from ")
    about = node.label.replace(f" {period_text(node.first_at, node.last_at)}", "")
    return f"{shortened(about, _ENTRY_CHARACTERS)} ({when})"


def _metadata(merged: Merged, names: Sequence[str]) -> dict[str, Any]:
    whole = merged.metadata(units=0)
    kept = {name: whole[name][:most] for name, most in _KEPT.items()}
    return {**kept, "language": merged.language, "names": list(names)}
