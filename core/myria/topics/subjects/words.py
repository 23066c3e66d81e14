"""What a person reads about a subject: its name; then its latest state, and what was before that.

From the children's renderings alone: a leaf says what was said, a division of a large subject what its leaves say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

from myria.text.announcing import holds_later
from myria.text.dates import DAY_US
from myria.text.kinds import kind_name, members_of
from myria.topics.calendar import date_text, period_text
from myria.topics.describe import LABEL_CHARACTERS, hint_title, main_language, merged_phrases, most_named
from myria.topics.lines import capitalised, clip, counted
from myria.topics.model import Description, Node
from myria.topics.phrases import key_of
from myria.topics.quoting import BEFORE, LATEST, SPOKEN_OF, clip_quote, quotes_of
from myria.topics.subjects.statements import state_of

_SUBJECT_CHARACTERS = 480
_GROUP_CHARACTERS = 160
"""Most characters of a summary: of a subject, and of a division of one or a group of subjects."""

_KIND_NOUNS = {"live": "home"}
"""Labels of kinds whose own word is no noun."""

_MEMBERS_NAMED = 2
"""Most things of a kind in the name of a subject."""

_MOST_KEPT = 3
"""Most phrases and speakers in the metadata, from which the nodes above are described."""

_STATE_CHARACTERS = 200
"""Most characters of a state: only a model's summary quotes longer ones."""

_NO_STATE = "Spoken of "
_BY_TIME = attrgetter("last_at", "key_timestamp", "key_digest")


def describe_subject(key: str, children: Sequence[Node]) -> Description:
    """Describe a key's subject from its children: its leaves, or its divisions if one node cannot hold the leaves."""
    name = _subject_name(key, 0, children)  # the children's metadata name this subject first
    return Description(
        label=clip(capitalised(name), LABEL_CHARACTERS),
        summary=_state_summary([key], children, _SUBJECT_CHARACTERS),
        metadata=_metadata(children, [name]),
    )


def describe_division(keys: Sequence[str], children: Sequence[Node]) -> Description:
    """Describe a part of a large subject; `keys` are the subject's, then those that all leaves of the part share."""
    names = [_subject_name(key, key_index, children) for key_index, key in enumerate(keys)]
    # Two single words may share leaves by chance; "BrewMate: Café Mistral" is no chance.
    other_names = ", ".join(name for key, name in zip(keys[1:], names[1:], strict=True) if " " in key)
    title = f"{names[0]}: {other_names}" if other_names else f"{names[0]} {_period(children)}"
    return Description(
        label=clip(capitalised(title), LABEL_CHARACTERS),
        summary=latest_of(_state_summary(keys, children, _GROUP_CHARACTERS)),
        metadata=_metadata(children, names),
    )


def describe_index(children: Sequence[Node]) -> Description:
    """Describe a group of subjects whose keys are neighbours in the alphabet, as in an index; they share no topic."""
    names = [children[0].metadata["names"][0], children[-1].metadata["names"][-1]]
    subjects = sum(child.units for child in children)
    return Description(
        label=clip(f"Subjects from {names[0]} to {names[1]}", LABEL_CHARACTERS),
        summary=f"{counted(subjects, 'subject')} {_period(children)}.",
        metadata=_metadata(children, names),
    )


def latest_of(summary: str) -> str:
    """Return the part of a subject's summary about its latest state: all before the earlier state."""
    at = summary.find(BEFORE)
    # What somebody said may hold these words, too.
    while at >= 0 and summary.count("“", 0, at) > summary.count("”", 0, at):
        at = summary.find(BEFORE, at + 1)
    return summary if at < 0 else summary[:at]


def _period(children: Sequence[Node]) -> str:
    return period_text(min(child.first_at for child in children), max(child.last_at for child in children))


def _subject_name(key: str, key_index: int, children: Sequence[Node]) -> str:
    """Return a key as people wrote it most: by phrases, else by hints, else by keywords; the key itself if by none.

    `key_index` is the position of the key's name in the `names` of children that are divisions.
    """
    if (kind := kind_name(key)) is not None:
        return _kind_subject_name(key, _KIND_NOUNS.get(kind, kind), key_index, children)
    phrase_weights: Counter[str] = Counter()
    keyword_weights: Counter[str] = Counter()
    hint_weights: Counter[str] = Counter()
    longer_phrases: Counter[str] = Counter()
    for child in children:
        metadata = child.metadata
        if not child.is_leaf:
            for name in metadata["names"][key_index : key_index + 1]:
                phrase_weights[name] += child.leaves
            continue
        for wording, weight in metadata["phrases"]:
            if " ".join(key_of(wording)) == key:
                phrase_weights[wording] += weight
            elif key in key_of(wording):
                longer_phrases[wording] += 1
        for wording, weight in metadata["keywords"]:
            if " ".join(key_of(wording)) == key:
                keyword_weights[wording] += weight
        for hint, permille in metadata["hints"]:
            if " ".join(key_of(hint)) == key and (title := hint_title(hint)):
                hint_weights[title] += permille
    longer_name, leaves_saying = min(longer_phrases.items(), key=lambda pair: (-pair[1], pair[0]), default=("", 0))
    if 2 * leaves_saying > len(children):
        return longer_name  # "Harry Potter" where most of them say so, not "Potter"
    wordings = phrase_weights or hint_weights or keyword_weights
    return min(wordings, key=lambda name: (-wordings[name], name)) if wordings else key


def _kind_subject_name(key: str, noun: str, key_index: int, children: Sequence[Node]) -> str:
    """Return the noun of a kind where somebody says it, else those of the kind that are said most: "train, bus".

    Where all speak of the engine of a tariff, nobody means a vehicle.
    """
    said: list[tuple[str, int]] = []
    for child in children:
        if child.is_leaf:
            said += chain(child.metadata["keywords"], child.metadata["phrases"])
        else:
            said += [(name, child.leaves) for name in child.metadata["names"][key_index].split(", ")]
    if any(key_of(noun)[0] in key_of(wording) for wording, _ in said):
        return noun
    members = [(wording, weight) for wording, weight in said if members_of(key).issuperset(key_of(wording))]
    return ", ".join(wording for wording, _ in merged_phrases(members, _MEMBERS_NAMED)) or noun


def _state_summary(keys: Sequence[str], children: Sequence[Node], most: int) -> str:
    """Return a subject's summary: its latest state and the one before it, quoted with their dates.

    A state announced for a day still to come stands behind the one that holds until then. If the newest leaf tells no
    state, the summary adds when the subject was last spoken of; if no leaf tells one, it says only when that was.
    """
    newest_first = sorted(children, key=_BY_TIME, reverse=True)
    today = f"on {date_text(newest_first[0].last_at)}"
    states: list[_State] = []
    announced: _State | None = None
    spoken_of = ""
    for node in newest_first:
        state = _state_of(keys, node, now=newest_first[0].last_at)
        if state is None or any(state.repeats(known) for known in (*states, announced) if known is not None):
            continue
        if state.is_announced:
            announced = announced or state
            continue
        if not states and announced is None and state.day not in ("", today):
            spoken_of = f"{SPOKEN_OF}{today}."
        states.append(state)
        if len(states) > 1:
            break
    announcement = "" if announced is None else announced.text
    if not states:
        return clip_quote(announcement, most) if announced else f"{_NO_STATE}{_period(children)}."
    latest = clip_quote(f"{LATEST}{states[0].text}{spoken_of}{' ' if announced else ''}{announcement}", most)
    before = "".join(f"{BEFORE}{state.text}" for state in states[1:])
    return latest + before if len(latest) + len(before) <= most else latest


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    """A state that a leaf or a division tells: what a summary says of it, and the words of its quote.

    `day` is when a leaf tells it ("on 8 May 2023"), "" for a division, which says that itself.
    """

    text: str
    words: str
    day: str = ""
    is_announced: bool = False

    def repeats(self, other: _State) -> bool:
        """Tell whether both quote the same words, whoever says them and wherever they are cut."""
        words, others = self.words.rstrip("…"), other.words.rstrip("…")
        return words.startswith(others) or others.startswith(words)


def _state_of(keys: Sequence[str], node: Node, *, now: int) -> _State | None:
    """Return the state that a leaf or a division tells of a subject, None if it tells none.

    Args:
        now: what holds only after that is announced; in microseconds since 1970 UTC.
    """
    if not node.is_leaf:
        latest = latest_of(node.summary)
        quotes = quotes_of(latest)
        if not quotes:
            return None
        text = latest.removeprefix(LATEST)
        return _State(text=text, words=quotes[0].words, is_announced=text == latest)
    quote = state_of(keys, node)
    if quote is None:
        return None
    said = clip_quote(quote.said, _STATE_CHARACTERS)
    holds_from = holds_later(said, at=node.last_at, now=now)
    if holds_from is not None:
        return _State(text=f"From {date_text(holds_from * DAY_US)}: {said}", words=quote.words, is_announced=True)
    day = (quote.day or f"on {date_text(node.last_at)}").replace("On ", "on ", 1)
    return _State(text=f"{day}: {said}", words=quote.words, day=day)


def _metadata(children: Sequence[Node], names: Sequence[str]) -> dict[str, Any]:
    child_metadata = [child.metadata for child in children]
    phrases = merged_phrases(chain.from_iterable([metadata["phrases"] for metadata in child_metadata]), _MOST_KEPT)
    speakers = most_named(chain.from_iterable([metadata["speakers"] for metadata in child_metadata]), _MOST_KEPT)
    language = main_language((child.metadata.get("language", ""), child.events) for child in children)
    return {
        "keywords": [],
        "phrases": [list(pair) for pair in phrases],
        "speakers": [list(pair) for pair in speakers],
        "hints": [],
        "language": language,
        "names": list(names),
    }
