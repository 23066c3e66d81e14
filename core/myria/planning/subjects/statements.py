"""What a leaf says of a subject: its statements, and which of them tells a state.

A statement tells a state where it says enough beside what the subject is called. Words that are said about everything
count little, courtesies and words that hold sentences together not at all; what exclaims, thanks or speaks of somebody
else must say more. So "That violin is gorgeous!" tells nothing, "The violin went to the luthier in Porto!" does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from sys import intern

from myria.analysis import is_stopword, terms, words_in
from myria.analysis.common_words import plain_terms, weak_terms
from myria.analysis.kinds import members_of
from myria.planning.courtesies import courtesies
from myria.planning.lines import capitalised, clip, listed
from myria.planning.model import Node
from myria.planning.wording import conjunction_of, is_function_word
from myria.values import short_value

STATE_CHARACTERS = 200

_REMEMBERED = 20_480
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
    """What a leaf tells: its statements, each with its speaker, and the terms of each."""

    statements: tuple[tuple[str, str], ...]
    said: tuple[tuple[str, ...], ...]

    def naming(self, key: str) -> list[tuple[str, str]]:
        """Return the statements that name a subject, or something of its kind."""
        members = members_of(key)
        if not members and " " not in key:
            return [statement for statement, said in zip(self.statements, self.said, strict=True) if key in said]
        is_other = members.union(key.split(" ")).isdisjoint
        return [statement for statement, said in zip(self.statements, self.said, strict=True) if not is_other(said)]


@lru_cache(maxsize=_REMEMBERED)
def told_by(summary: str) -> Told:
    """Return what the summary of a leaf quotes; questions are no statements."""
    statements: list[tuple[str, str]] = []
    said: list[tuple[str, ...]] = []
    for quote in _QUOTE.finditer(summary):
        words = quote[1]
        if words.endswith(_QUESTION_MARKS):
            continue
        start = quote.start()
        named = _SPEAKER.search(summary, max(0, start - _SPEAKER_CHARACTERS), start)
        statements.append((intern(named[1].rstrip(": ")) if named is not None else "", words))
        said.append(tuple(terms(_unclipped(words))))
    return Told(tuple(statements), tuple(said))


def forget_statements() -> None:
    """Let go of what leaves tell: once the subjects of their scope are made, nobody asks again."""
    told_by.cache_clear()
    _weighed.cache_clear()


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
    return name if _weighed(leaf.label).beside(keys[0]) >= _TELLING else None


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
    weighed = _weighed(words)
    content = weighed.beside(key)
    return (weighed.least == _LEAST_CONTENT, content) if content >= weighed.least else _NO_CONTENT


@short_value
class _Weighed:
    """What a statement says something with, each word once: those that are telling and others; how much it must say."""

    telling: tuple[str, ...]
    others: tuple[str, ...]
    least: int

    def beside(self, key: str) -> int:
        """Return how much it says beside a key."""
        content = _TELLING * len(self.telling) + len(self.others)
        for term in {*key.split(" ")} if " " in key else (key,):
            if term in self.telling:
                content -= _TELLING
            elif term in self.others:
                content -= 1
        return content


@lru_cache(maxsize=2 * _REMEMBERED)
def _weighed(words: str) -> _Weighed:
    """Return what a statement says something with, and how much it must say."""
    said = words_in(_unclipped(words))
    polite = courtesies(words, said)
    read = dict.fromkeys([term for at, term in enumerate(said.terms) if at not in polite] if polite else said.terms)
    least = _LEAST_CONTENT
    if words.endswith(_EXCLAMATIONS) or 0 in polite:
        least += 1
    if not _other_persons().isdisjoint(read) and _first_persons().isdisjoint(read):
        least += 1
    weights = list(map(_weight, read))
    return _Weighed(
        tuple([term for term, weight in zip(read, weights, strict=True) if weight == _TELLING]),
        tuple([term for term, weight in zip(read, weights, strict=True) if 0 < weight < _TELLING]),
        least,
    )


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
