"""What a person reads about a subject: its name, whose it is and what is said of it; then its history, newest first.

From the children's renderings alone: a leaf says what was said, a division of a large subject what its leaves say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from myria.analysis.kinds import kind_name, kinds_of
from myria.planning.calendar import date_text, period_text
from myria.planning.describe import LABEL_CHARACTERS, Description, Gist, Merged, hint_title
from myria.planning.lines import as_many_as_fit, capitalised, clip, counted, fitting, listed, shortened
from myria.planning.model import LEAF, Node
from myria.planning.phrases import NAME_CHARACTERS, key_of
from myria.planning.subjects.statements import called, says, state_of, statements

_PHRASES = 2
_SHARED_MOST = 4
"""Children that share a phrase's words, as far as they count."""

_OF_KIND = 4
"""How much more what names one of a kind says of the kind than other phrases do."""

_KIND_NOUNS = {"live": "home"}
"""Kinds that are called by a word that is no noun, and what a label calls them."""

_POSSESSIVES = ("'s", "’s")

_LEAST_SAID = 2
"""Times that somebody says something of a subject before it is called after that person."""

_PHRASES_KEPT = _SPEAKERS_KEPT = 3
"""What the metadata keep: what is shown, and what nodes above are described from; there may be as many as leaves."""

_SUBJECT_CHARACTERS = 480
_GROUP_CHARACTERS = 160
"""Characters of a summary: of a subject, and of what only stands above or within one."""

_ENTRY_CHARACTERS = 60
_INVERTED = bytes(range(255, -1, -1))
"""Each byte by its complement, which turns the order of digests."""

_BEFORE = " Before: "


def describe_subject(key: str, children: Sequence[Node]) -> Description:
    """Describe a subject from its leaves, or from the divisions that it is large enough for."""
    merged = Merged([Gist.of(child) for child in children])
    name = _name(key, 0, children)
    owner = _owner(_said_by(key, children))
    title = f"{capitalised(name)} ({owner})" if owner else capitalised(name)
    return Description(
        label=_label(title, _about([name], [key], children)),
        summary=_history(key, children, _SUBJECT_CHARACTERS),
        metadata=_metadata(merged, [name]),
    )


def describe_division(keys: Sequence[str], children: Sequence[Node]) -> Description:
    """Describe a part of a large subject: `keys` are the subject's own and those that all of the part share."""
    merged = Merged([Gist.of(child) for child in children])
    names = [_name(key, at, children) for at, key in enumerate(keys)]
    title = capitalised(listed(names, merged.conjunction))
    if len(names) == 1:
        title = f"{title} {period_text(merged.first_at, merged.last_at)}"
    said_by = _said_by(keys[0], children)
    return Description(
        label=_label(title, _about(names, keys, children)),
        summary=_latest(keys, children, _GROUP_CHARACTERS)[0],
        metadata=_metadata(merged, names, said_by),
    )


def describe_index(children: Sequence[Node]) -> Description:
    """Describe a group of subjects that stand beside each other by their keys alone."""
    merged = Merged([Gist.of(child) for child in children])
    names = [children[0].metadata["names"][0], children[-1].metadata["names"][-1]]
    subjects = sum(child.units for child in children)
    head = f"{counted(subjects, 'subject')} {period_text(merged.first_at, merged.last_at)}"
    return Description(
        label=clip(f"Subjects from {names[0]} to {names[1]}", LABEL_CHARACTERS),
        summary=f"{head}.",
        metadata=_metadata(merged, names),
    )


def _label(title: str, about: Sequence[str]) -> str:
    phrases = fitting(about, max(NAME_CHARACTERS, LABEL_CHARACTERS - len(title) - 2)) if about else []
    return clip(f"{title}: {listed(phrases)}" if phrases else title, LABEL_CHARACTERS)


def _about(names: Sequence[str], keys: Sequence[str], children: Sequence[Node]) -> list[str]:
    """Return the phrases that say most beside the names: children share their words, or they name one of a kind."""
    kinds = [key for key in keys if kind_name(key) is not None]
    said: dict[tuple[str, ...], tuple[int, str]] = {}
    words_of_all: list[str] = []
    for child in children:
        phrases, keywords = child.metadata["phrases"], child.metadata["keywords"]
        of_phrases = [key_of(wording) for wording, _ in phrases]
        of_words = [key_of(word) for word, _ in keywords]
        words_of_all += set(chain(chain.from_iterable(of_phrases), chain.from_iterable(of_words)))
        # A single word is worth showing where it is one of the kind; phrases are nouns.
        shown = list(zip(of_phrases, phrases, strict=True))
        if kinds:
            words = zip(of_words, keywords, strict=True)
            shown.extend((of, word) for of, word in words if _names_one(of, keys, kinds))
        for of, (wording, weight) in shown:
            total, best = said.get(of, (0, wording))
            said[of] = (total + weight, best)
    taken = {term for name in (*names, *keys) for term in key_of(name)}
    shared = Counter(words_of_all)
    ranked = sorted(
        (
            -weight
            * min(max(map(shared.__getitem__, of)), _SHARED_MOST)
            * (_OF_KIND if _names_one(of, keys, kinds) else 1),
            of,
        )
        for of, (weight, _) in said.items()
    )
    chosen: list[str] = []
    for _, of in ranked:
        if not taken.intersection(of):
            taken.update(of)
            chosen.append(_without_possessive(said[of][1]))
            if len(chosen) == _PHRASES:
                break
    return chosen


def _names_one(of: Iterable[str], keys: Sequence[str], kinds: Sequence[str]) -> bool:
    """Tell whether a phrase names one of a kind; `kinds` are those keys that are kinds."""
    return bool(kinds) and any(term not in keys and any(kind in kinds for kind in kinds_of(term)) for term in of)


def _name(key: str, place: int, children: Sequence[Node]) -> str:
    """Return a key as people said it; `place` is that of the key among those of a division."""
    kind = kind_name(key)
    if kind is not None:
        return _KIND_NOUNS.get(kind, kind)
    weights: dict[str, int] = {}
    hinted: dict[str, int] = {}
    fuller: dict[tuple[str, ...], list[str]] = {}
    is_long = " " in key
    for child in children:
        if child.node_type != LEAF:
            names = child.metadata["names"]
            if place < len(names):
                weights[names[place]] = weights.get(names[place], 0) + child.leaves
            continue
        for hint, permille in child.metadata["hints"]:
            if " ".join(key_of(hint)) == key and (name := hint_title(hint)):
                hinted[name] = hinted.get(name, 0) + permille
        for name, weight in (*child.metadata["phrases"], *child.metadata["keywords"]):
            of = key_of(name)
            is_in = key in of
            if (is_in and len(of) == 1) or (is_long and " ".join(of) == key):
                weights[name] = weights.get(name, 0) + weight
            if not is_in or " " not in name:
                continue
            for pair in pairwise(name.split(" ")):
                of_pair = key_of(" ".join(pair))
                if of_pair[-1] == key and len(of_pair) == len(pair) and (len(of) == len(pair) or pair[0][:1].isupper()):
                    fuller.setdefault(of_pair, []).append(" ".join(pair))
    for of in sorted(fuller, key=lambda of: (-len(fuller[of]), of)):
        # "Harry Potter" where most of them say so, not "Potter".
        if len(fuller[of]) * 2 > len(children):
            return min(fuller[of])
    weights = weights or hinted
    return _without_possessive(min(weights, key=lambda name: (-weights[name], name))) if weights else key


def _without_possessive(wording: str) -> str:
    """Return "weight" for "weight's"; what has a capital may be a name, such as that of a bar."""
    return wording[:-2] if wording.endswith(_POSSESSIVES) and wording[:1].islower() else wording


def _said_by(key: str, children: Sequence[Node]) -> dict[str, int]:
    """Return how often each speaker says something of a subject, by the quotes of summaries; questions say nothing."""
    said: dict[str, int] = {}
    for child in children:
        if child.node_type != LEAF:
            counts = child.metadata.get("said_by", ())
        else:
            counts = [(speaker, 1) for speaker, words in statements(child.summary) if speaker and says(key, words)]
        for speaker, count in counts:
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
    """Return the latest state that is told, of the first of some keys that it is told of; and what was before it."""
    newest = sorted(children, key=_newest_first)
    for at, node in enumerate(newest):
        if node.node_type != LEAF:
            return clip(node.summary, most), newest[at + 1 :]
        if (state := state_of(keys, node)) is not None:
            return _dated(node, state, most), newest[at + 1 :]
    return _dated(newest[0], called(keys[0], newest[0]), most), newest[1:]


def _dated(leaf: Node, state: str, most: int) -> str:
    now = f"Latest, on {date_text(leaf.last_at)}: {state}"
    return clip(now if now.endswith((".", "”", "…", "!", "?")) else f"{now}.", most)


def _newest_first(node: Node) -> tuple[int, int, bytes]:
    timestamp, digest = node.key
    return -node.last_at, -timestamp, digest.translate(_INVERTED)


def _entry(node: Node) -> str:
    if node.node_type == LEAF:
        return f"{shortened(node.label, _ENTRY_CHARACTERS)} ({date_text(node.last_at)})"
    when = period_text(node.first_at, node.last_at).removeprefix("on ").removeprefix("from ")
    # A division is called after the subject, too.
    about = node.label.partition(": ")[2]
    beside = [*node.metadata["names"][1:], *([about] if about else [])] or node.metadata["names"]
    return f"{shortened(capitalised(': '.join(beside)), _ENTRY_CHARACTERS)} ({when})"


def _metadata(merged: Merged, names: Sequence[str], said_by: Mapping[str, int] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "keywords": [],
        "phrases": [list(pair) for pair in merged.phrases[:_PHRASES_KEPT]],
        "speakers": [list(pair) for pair in merged.speakers[:_SPEAKERS_KEPT]],
        "hints": [],
        "language": merged.language,
        "names": list(names),
    }
    if said_by:
        metadata["said_by"] = [list(pair) for pair in sorted(said_by.items())]
    return metadata
