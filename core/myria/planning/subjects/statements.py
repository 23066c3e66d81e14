"""What a leaf says of a subject: its statements, and which of them tells a state.

A statement tells a state where it says enough beside what the subject is called. Words that are said about everything
count little, courtesies and words that hold sentences together not at all; what exclaims, thanks or speaks of somebody
else must say more. So "That violin is gorgeous!" tells nothing, "The violin went to the luthier in Porto!" does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from myria.analysis import is_stopword, terms, words_in
from myria.analysis.common_words import plain_terms, weak_terms
from myria.analysis.kinds import members_of
from myria.planning.courtesies import courtesies
from myria.planning.lines import capitalised, clip, listed
from myria.planning.model import Node
from myria.planning.wording import conjunction_of, is_function_word
from myria.values import short_value

STATE_CHARACTERS = 200

_REMEMBERED = 8_192
"""Summaries of leaves that are remembered: a leaf is described in up to three subjects and their divisions."""

_NAMED = 2
"""Phrases that stand for a leaf which nothing else names."""

_TELLING = 2
"""What a word weighs that is not said about everything, as a number does."""

_LEAST_CONTENT = 3

_NO_CONTENT = (False, 0)

_OTHER_PERSONS = """
you your yours you're du dich dir dein deine deinen deiner euch tu te toi ton tes vous votre vos tú ti tus usted
ustedes você seu sua voi tuo tua jij je jouw jullie din ditt
"""
_FIRST_PERSONS = """
i i'm i've i'd i'll me my we we're we've our us ich mich mir mein meine wir uns unser unsere je j'ai me moi mon ma mes
nous notre nos yo mi mis nosotros nuestro nuestra eu meu minha nós nosso nossa io mio mia noi nostro ik mij mijn wij jag
mig min mitt vi vår
"""

_QUOTE = re.compile("“([^“”]+)”")
_SPEAKER = re.compile("[.!?…”] ([^“”.!?:]{1,40}): \\Z")
"""Who says what is quoted next, and what ends the sentence before."""
_SPEAKER_CHARACTERS = 44
"""Characters before a quote that these take at most."""

_QUESTION_MARKS = ("?", "？", "؟")
_EXCLAMATIONS = ("!", "！", "!…")


@short_value
class Told:
    """What a leaf tells: its statements, each with its speaker, and for each term which of them say it, as bits."""

    statements: tuple[tuple[str, str], ...]
    said: Mapping[str, int]

    def naming(self, key: str) -> list[tuple[str, str]]:
        """Return the statements that name a subject, or something of its kind."""
        said = self.said
        found = said.get(key, 0)
        if " " in key:
            for term in key.split(" "):
                found |= said.get(term, 0)
        if members := members_of(key):
            for term in members.intersection(said):
                found |= said[term]
        return [statement for at, statement in enumerate(self.statements) if found >> at & 1] if found else []


@lru_cache(maxsize=_REMEMBERED)
def told_by(summary: str) -> Told:
    """Return what the summary of a leaf quotes; questions are no statements."""
    statements: list[tuple[str, str]] = []
    said: dict[str, int] = {}
    for quote in _QUOTE.finditer(summary):
        words = quote[1]
        if words.endswith(_QUESTION_MARKS):
            continue
        start = quote.start()
        named = _SPEAKER.search(summary, max(0, start - _SPEAKER_CHARACTERS), start)
        read = terms(_unclipped(words))
        if not statements:
            said = dict.fromkeys(read, 1)
        else:
            bit = 1 << len(statements)
            for term in read:
                said[term] = said.get(term, 0) | bit
        statements.append((named[1].rstrip(": ") if named is not None else "", words))
    return Told(tuple(statements), said)


def says(key: str, words: str) -> bool:
    """Tell whether words name a subject, or something of its kind."""
    said = terms(words)
    return any(term in said for term in key.split(" ")) or not members_of(key).isdisjoint(said)


def state_of(keys: Sequence[str], leaf: Node) -> str | None:
    """Return what a leaf says of the first of some keys that it says something of, else what it is called.

    None where neither says more than what the subject is called.
    """
    for key in keys:
        best = _NO_CONTENT
        for statement in told_by(leaf.summary).naming(key):
            content = _content(key, statement[1])
            if content > best:
                best, (speaker, words) = content, statement
        if best > _NO_CONTENT:
            return clip(f"{speaker}: “{words}”" if speaker else f"“{words}”", STATE_CHARACTERS)
    name = called(keys[0], leaf)
    said, _ = _weighed(leaf.label)
    return name if sum(weight for term, weight in said if term not in keys[0].split(" ")) >= _TELLING else None


def called(key: str, leaf: Node) -> str:
    """Return what a leaf is called, after the word that names one of the subject's kind where its label does not."""
    phrases = [phrase for phrase, _ in leaf.metadata["phrases"]]
    label = leaf.label
    if label.startswith("“") and phrases:
        label = capitalised(listed(phrases[:_NAMED], conjunction_of(leaf.metadata["language"])))
    if not says(key, label):
        named = [keyword for keyword, _ in leaf.metadata["keywords"] if says(key, keyword)]
        if named and key not in terms(named[0]):
            label = f"{capitalised(named[0])}: {label}"
    return clip(label, STATE_CHARACTERS)


def _content(key: str, words: str) -> tuple[bool, int]:
    """Return how well a statement tells a state of a subject: plainly or not, and how much it says beside the key."""
    said, least = _weighed(words)
    own = key.split(" ")
    content = sum([weight for term, weight in said if term not in own])
    return (least == _LEAST_CONTENT, content) if content >= least else _NO_CONTENT


@lru_cache(maxsize=_REMEMBERED)
def _weighed(words: str) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the words that a statement says something with, each with its weight; and how much it must say."""
    said = words_in(_unclipped(words))
    polite = courtesies(words, said)
    weights = {term: _weight(term) for at, term in enumerate(said.terms) if at not in polite}
    least = _LEAST_CONTENT
    if words.endswith(_EXCLAMATIONS) or 0 in polite:
        least += 1
    if not _other_persons().isdisjoint(weights) and _first_persons().isdisjoint(weights):
        least += 1
    return tuple((term, weight) for term, weight in weights.items() if weight), least


def _unclipped(words: str) -> str:
    """Return words without what marks that they were clipped: most are ASCII then, which is read in less time."""
    return words.removesuffix("…")


@lru_cache(maxsize=2 * _REMEMBERED)
def _weight(term: str) -> int:
    if len(term) < 2 and not term.isdigit():
        return 0
    if is_stopword(term) or is_function_word(term):
        return 0
    return 1 if term in weak_terms() or term in plain_terms() else _TELLING


@cache
def _other_persons() -> frozenset[str]:
    return frozenset(terms(_OTHER_PERSONS))


@cache
def _first_persons() -> frozenset[str]:
    return frozenset(terms(_FIRST_PERSONS))
