"""What a note is about, in one word, where its writer does not say: a word that may be a noun.

Verbs of deciding, liking and keeping begin most notes and say nothing of their subject. Which words may be nouns, and
what function words are, is known as it is where topics of the tree are named; a list has the verbs of notes beside.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from myria.notes.wordcounts import WordCounts
from myria.text import words_in
from myria.text.common_words import plain_terms, weak_terms
from myria.topics.english import EMPTY_NOUNS, VERB_FORMS, ends_unlike_a_noun
from myria.topics.wording import ENGLISH, Language, is_function_word, language_of, words_of

GENERAL = "general"
"""The topic of a note that says nothing that could be one."""

_LOOKED_AT = 2_000
"""Characters of a text that are looked at."""

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
"""The same of scripts that write no spaces: they are taken out of a text."""


def topic_of(keywords: Sequence[str]) -> str:
    """Return the topic of a note whose writer chose keywords: the first of them."""
    return keywords[0] if keywords else GENERAL


def is_verb_of_notes(word: str) -> bool:
    """Tell whether a word, in small letters, is one with which notes begin whatever they are about: "prefers"."""
    return word in _no_subjects()


def subject_of(content: str, counted: WordCounts | None = None) -> str:
    """Return the topic of a note whose writer chose none: the word that it says most often, of equals the first.

    Words that may be subjects come before others, and of these uncommon ones before everyday nouns.

    Args:
        counted: the words of the content, where they are counted already.
    """
    beginning = content[:_LOOKED_AT]
    if not beginning.isascii() or len(content) > _LOOKED_AT:
        counted = None
    if not beginning.isascii():
        beginning = _within().sub(" ", beginning)
    language, words = _counted(beginning, counted) or _in_order(beginning)
    everyday: str | None = None
    other: str | None = None
    # Nearly always the first or second is a subject, and the others need not be looked at.
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


def begins_notes(word: str) -> bool:
    """Tell whether a word begins notes and says nothing of their subject (`prefiero`, `beschlossen`)."""
    return word.lower() in _no_subjects()


def _counted(text: str, counted: WordCounts | None) -> tuple[Language, WordCounts] | None:
    """Return the language of a text and its words; None where that takes more than counting them."""
    if not text.isascii():
        return None
    words = WordCounts.of_text(text) if counted is None else counted
    if _ENGLISH_SHARE * words.votes.stopwords >= words.words:
        return ENGLISH, words  # so many English function words that no other language need be thought of
    language = words.votes.language()
    return None if language.capitalises_nouns or language.adjective is not None else (language, words)


def _in_order(text: str) -> tuple[Language, WordCounts]:
    """Return the language of a text and its words as they are written in it."""
    found = words_in(text)
    language = language_of(found)
    read = words_of(text, found, language)
    return language, WordCounts.of((surface, term, 1) for surface, term in zip(read.surfaces, read.terms, strict=True))


def _class_of(term: str, surface: str, language: Language) -> int:
    """Return 0 for a word that is likely a subject, 1 for an everyday noun, 2 for what is none."""
    small = surface.lower()
    if small in _no_subjects() or term in weak_terms() or small[:1].isdigit():
        return _NONE
    if small.isascii() and (small in VERB_FORMS or small in EMPTY_NOUNS or ends_unlike_a_noun(small)):
        return _NONE
    if not language.is_english and (is_function_word(small) or language.is_verb(surface)):
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
