"""What a person reads about a subject: its name; then its latest state, and what was before that.

From the children's renderings alone: a leaf says what was said, a division of a large subject what its leaves say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from myria.text.announcing import holds_later
from myria.text.dates import DAY_US
from myria.text.kinds import kind_name
from myria.topics.calendar import date_text, period_text
from myria.topics.describe import LABEL_CHARACTERS, hint_title, main_language, merged_phrases, most_named
from myria.topics.lines import capitalised, clip, counted
from myria.topics.model import Description, Node
from myria.topics.phrases import key_of
from myria.topics.subjects.statements import state_of

_SUBJECT_CHARACTERS = 480
_GROUP_CHARACTERS = 160
"""Characters of a summary: of a subject, and of what only stands above or within one."""

_KIND_NOUNS = {"live": "home"}
"""Kinds that are called by a word that is no noun, and what a label calls them."""

_KEPT = 3
"""Phrases and speakers that the metadata keep: what nodes above are described from."""

_LATEST, _BEFORE, _UNTOLD = "Latest, ", " Before: ", "Spoken of "
_IN_TIME = attrgetter("last_at", "key_timestamp", "key_digest")


def describe_subject(key: str, children: Sequence[Node]) -> Description:
    """Describe a subject from its leaves, or from the divisions that it is large enough for."""
    name = _name(key, 0, children)
    return Description(
        label=clip(capitalised(name), LABEL_CHARACTERS),
        summary=_states([key], children, _SUBJECT_CHARACTERS),
        metadata=_metadata(children, [name]),
    )


def describe_division(keys: Sequence[str], children: Sequence[Node]) -> Description:
    """Describe a part of a large subject: `keys` are the subject's own and those that all of the part share."""
    names = [_name(key, place, children) for place, key in enumerate(keys)]
    # Two single words may share leaves by chance; "BrewMate: Café Mistral" is no chance.
    beside = ", ".join(name for key, name in zip(keys[1:], names[1:], strict=True) if " " in key)
    title = f"{names[0]}: {beside}" if beside else f"{names[0]} {_period(children)}"
    return Description(
        label=clip(capitalised(title), LABEL_CHARACTERS),
        summary=latest_of(_states(keys, children, _GROUP_CHARACTERS)),
        metadata=_metadata(children, names),
    )


def describe_index(children: Sequence[Node]) -> Description:
    """Describe a group of subjects that stand beside each other by their keys alone."""
    names = [children[0].metadata["names"][0], children[-1].metadata["names"][-1]]
    subjects = sum(child.units for child in children)
    return Description(
        label=clip(f"Subjects from {names[0]} to {names[1]}", LABEL_CHARACTERS),
        summary=f"{counted(subjects, 'subject')} {_period(children)}.",
        metadata=_metadata(children, names),
    )


def latest_of(summary: str) -> str:
    """Return what the summary of a subject says of its latest state."""
    return summary.partition(_BEFORE)[0]


def _period(children: Sequence[Node]) -> str:
    return period_text(min(child.first_at for child in children), max(child.last_at for child in children))


def _name(key: str, place: int, children: Sequence[Node]) -> str:
    """Return a key as people said it; `place` is that of the key among those of a division."""
    kind = kind_name(key)
    if kind is not None:
        return _KIND_NOUNS.get(kind, kind)
    weights: Counter[str] = Counter()
    words: Counter[str] = Counter()
    hinted: Counter[str] = Counter()
    fuller: Counter[str] = Counter()
    for child in children:
        metadata = child.metadata
        if not child.is_leaf:
            for name in metadata["names"][place : place + 1]:
                weights[name] += child.leaves
            continue
        for wording, weight in metadata["phrases"]:
            if " ".join(key_of(wording)) == key:
                weights[wording] += weight
            elif key in key_of(wording):
                fuller[wording] += 1
        for wording, weight in metadata["keywords"]:
            if " ".join(key_of(wording)) == key:
                words[wording] += weight
        for hint, permille in metadata["hints"]:
            if " ".join(key_of(hint)) == key and (title := hint_title(hint)):
                hinted[title] += permille
    whole, times = min(fuller.items(), key=lambda pair: (-pair[1], pair[0]), default=("", 0))
    if 2 * times > len(children):
        return whole  # "Harry Potter" where most of them say so, not "Potter"
    found = weights or hinted or words
    return min(found, key=lambda name: (-found[name], name)) if found else key


def _states(keys: Sequence[str], children: Sequence[Node], most: int) -> str:
    """Return the latest state of a subject and the one before it, each in words of its own, with its date.

    A state that was announced for a day after all that was said stands behind the one that holds until then. Where
    nobody says anything of the subject, it is when it was spoken of, and where a newer talk does not, when that was.
    """
    newest_first = sorted(children, key=_IN_TIME, reverse=True)
    states: list[str] = []
    announced = ""
    for node in newest_first:
        if not node.is_leaf:
            summary = latest_of(node.summary)
            if summary.startswith(_LATEST):
                states.append(summary.removeprefix(_LATEST))
            elif not summary.startswith(_UNTOLD):
                announced = announced or f" {summary}"
        elif (state := state_of(keys, node)) is None or any(state in known for known in states):
            continue
        elif (day := holds_later(state, at=node.last_at, now=newest_first[0].last_at)) is None:
            day_said, day_spoken = date_text(node.last_at), date_text(newest_first[0].last_at)
            is_newest = states or announced or day_said == day_spoken
            states.append(f"on {day_said}: {state}" + ("" if is_newest else f" Last spoken of on {day_spoken}."))
        else:
            announced = announced or f" From {date_text(day * DAY_US)}: {state}"
        if len(states) > 1:
            break
    if announced and not states:
        return clip(announced.strip(), most)
    if not states:
        return f"{_UNTOLD}{_period(children)}."
    latest = clip(f"{_LATEST}{states[0]}{announced}", most)
    before = "".join(f"{_BEFORE}{state}" for state in states[1:])
    return latest + before if len(latest) + len(before) <= most else latest


def _metadata(children: Sequence[Node], names: Sequence[str]) -> dict[str, Any]:
    said = [child.metadata for child in children]
    phrases = merged_phrases(chain.from_iterable([metadata["phrases"] for metadata in said]), _KEPT)
    speakers = most_named(chain.from_iterable([metadata["speakers"] for metadata in said]), _KEPT)
    language = main_language((child.metadata.get("language", ""), child.events) for child in children)
    return {
        "keywords": [],
        "phrases": [list(pair) for pair in phrases],
        "speakers": [list(pair) for pair in speakers],
        "hints": [],
        "language": language,
        "names": list(names),
    }
