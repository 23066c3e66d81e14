"""Choose the topic of a note whose writer names none: one word of its text that may be a noun.

Verbs of deciding, liking and keeping begin most notes and say nothing of their subject, so a list here excludes them.
Nouns and function words are told apart by the rules that name the topics of the tree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from myria.text import words_in
from myria.text.common_words import plain_terms, weak_terms
from myria.text.words import counted_surfaces, is_stopword
from myria.topics.english import EMPTY_NOUNS, VERB_FORMS, ends_unlike_a_noun
from myria.topics.wording import ENGLISH, Language, Votes, is_function_word, language_of, words_of

GENERAL = "general"
"""The topic of a note whose text has no word that could be its topic."""

_LOOKED_AT = 2_000
"""First characters of a text that are read."""

_SHORTEST = 2
_NONE = 2
_ENGLISH_SHARE = 3

_NO_SUBJECT = """
agreed always approved avoid avoided avoids chosen chooses confirmed decides dislikes dislike enjoys ensure fail
failed failing fix fixed fixes hate hated hates instead likes love loves make made may might must never noted
now please prefer preferred prefers rather recommends remember remembers replaced resolved run runs settled
should shall sets store stored today todo tomorrow want wanted wants yesterday cannot whenever abgemacht
bevorzugt beschlossen brauchen braucht entschieden entschied gefällt gelöst genutzt gibt hasst immer lieber
liebt machen macht mag möchte mögen muss müssen nie niemals nutzen nutzt soll sollen sollte statt vereinbart
verwenden verwendet will wollen wurde wurden werden aime aiment adore choisi convenu décidé décidons déteste
doit doivent faut fait jamais préfère préfèrent préféré résolu toujours utilise utiliser utilisé veut veulent
acordado acordamos siempre nunca prefiere prefieren prefiero decidido decidimos decidió gusta gustan odia
elegido elegimos debe deben hay hacer quiere quieren usa usar usamos resuelto decidiu decidiram sempre prefere
preferem gosta gostam detesta deve devem escolheu escolhemos quer querem resolvido acordou deciso decidiamo mai
preferisce preferiscono piace piacciono devono scelto vuole vogliono usare usiamo besloten altijd nooit liever
houdt haat moet moeten gekozen gebruikt gebruiken wil willen opgelost hemos han keep keeps zuerst error errors
decision decisions preference procedure reminder note notes root cause user users minutes hours
"""

_NO_SUBJECT_WITHIN = """
결정했다 결정 결정했습니다 선호 선호한다 좋아한다 좋아 싫어한다 사용한다 사용 해결 항상 절대 決定
決めた 決め 好き 嫌い 使う 使い 使用 必ず 常に 决定 喜欢 讨厌 总是 从不 必须 选择
"""
"""Such words in scripts without spaces: they are cut out of a text before it is divided into words."""


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How often a text has each term that may be a topic or a keyword, in the order of their first places.

    Stop words, numbers and single letters may not. `shown` has each term's first form in the text. `words` is the
    number of all words, numbers too; `votes` is what the words tell about the text's language.
    """

    counts: Counter[str]
    shown: dict[str, str]
    words: int
    votes: Votes

    @classmethod
    def of(cls, words: Iterable[tuple[str, str, int]]) -> WordCounts:
        """Return the counts of words, each given with its term and how often it stands there."""
        counts: Counter[str] = Counter()
        shown: dict[str, str] = {}
        total, votes = 0, Votes()
        for surface, term, count in words:
            total += count
            if surface.isdigit():
                continue
            votes.add(term, count)
            if len(surface) >= _SHORTEST and not is_stopword(term):
                counts[term] += count
                shown.setdefault(term, surface)
        return cls(counts, shown, total, votes)

    @classmethod
    def of_text(cls, text: str) -> WordCounts:
        """Return the counts of the words of a text, in lower case."""
        return cls.of(counted_surfaces(text))

    @property
    def ranked(self) -> list[str]:
        """The terms, the most frequent first, of equals the earlier."""
        return [term for term, _ in self.counts.most_common()]


def begins_notes(word: str) -> bool:
    """Tell whether a word begins notes and says nothing of their subject (`prefiero`, `beschlossen`)."""
    return word.lower() in _no_subjects()


def subject_of(content: str) -> str:
    """Return the topic of a note whose writer chose none: its most frequent word, of equals the first.

    Uncommon words that may be nouns come before everyday nouns, and these before all other words.
    """
    beginning = content[:_LOOKED_AT]
    if not beginning.isascii():
        beginning = _within().sub(" ", beginning)
    language, words = _read(beginning)
    everyday: str | None = None
    other: str | None = None
    for term in words.ranked:
        surface = words.shown[term]
        rank = _class_of(term, surface, language)
        if not rank:
            return surface.lower()
        if rank == _NONE:
            other = other or surface.lower()
        else:
            everyday = everyday or surface.lower()
    return everyday or other or GENERAL


def _read(text: str) -> tuple[Language, WordCounts]:
    """Return the language of a text and the counts of its words, with capitals kept where they may tell a noun."""
    if text.isascii():
        words = WordCounts.of_text(text)
        if _ENGLISH_SHARE * words.votes.stopwords >= words.words:
            return ENGLISH, words  # so many English function words that no other language need be thought of
        language = words.votes.language()
        if not language.capitalises_nouns and language.adjective is None:
            return language, words
    tokens = words_in(text)
    language = language_of(tokens)
    wording = words_of(text, tokens, language)
    return language, WordCounts.of(
        (surface, term, 1) for surface, term in zip(wording.surfaces, wording.terms, strict=True)
    )


def _class_of(term: str, surface: str, language: Language) -> int:
    """Return 0 for an uncommon word that may be a noun, 1 for an everyday noun, 2 (`_NONE`) for any other word."""
    in_lower_case = surface.lower()
    if in_lower_case in _no_subjects() or term in weak_terms() or in_lower_case[:1].isdigit():
        return _NONE
    if in_lower_case.isascii() and (
        in_lower_case in VERB_FORMS or in_lower_case in EMPTY_NOUNS or ends_unlike_a_noun(in_lower_case)
    ):
        return _NONE
    if not language.is_english and (is_function_word(in_lower_case) or language.is_verb(surface)):
        return _NONE
    if language.capitalises_nouns and not surface[:1].isupper():
        return _NONE
    return int(term in plain_terms())


@cache
def _no_subjects() -> frozenset[str]:
    return frozenset(_NO_SUBJECT.split())


@cache
def _within() -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, _NO_SUBJECT_WITHIN.split()), key=lambda word: (-len(word), word))))
