"""Stems of words in languages other than English, for the search index and for questions.

Every text is indexed as it always was (`myria.text.terms`). Where its function words show another language of
which Snowball has a stemmer, the stems of its other words there are indexed beside them, marked with the language, so
that a German question finds "die Häuser" by "Haus" and no English word is taken for a German one. A text whose words
speak for several languages alike counts as each of them. Pure, and the same on every machine: the stemmers are pinned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache, partial
from itertools import chain
from typing import Final
from unicodedata import ucd_3_2_0

from myria.text._stemmers import stemmer
from myria.text.function_words import AUXILIARIES, FUNCTION_WORDS
from myria.text.words import MAX_TERM_CHARACTERS, TextWords, WordCache, folded, stop_terms, terms

STEMMED: Final = (
    "german",
    "french",
    "spanish",
    "portuguese",
    "italian",
    "dutch",
    "swedish",
    "polish",
    "turkish",
    "russian",
    "greek",
    "arabic",
    "persian",
    "hindi",
    "indonesian",
)
"""Languages with function words (`myria.text.function_words`) and a Snowball stemmer, in the order of results."""

_LETTERS: Final = {
    "german": "äöüß",
    "french": "éèêàçœùûîïëâ",
    "spanish": "ñáéíóúü¿¡",
    "portuguese": "ãõçáéíóúâêôà",
    "italian": "àèéìòù",
    "swedish": "åäö",
    "polish": "ąćęłńóśźż",
    "turkish": "ığşçöü",
    "russian": "аеиоуыэюяё",
    "greek": "αεηιουωάέήίόύώ",
    "arabic": "ايوةأإىكء",
    "persian": "پچژگکی",
    "hindi": "ािीेोक",
}
"""Letters that English lacks and a text of the language hardly does without."""

_MOST_LETTERS: Final = 2
"""Most votes that the letters of a text give to a language; each of its function words gives one."""

_READ_CHARACTERS: Final = 8 * 1024
_AT_ONCE: Final = 3
"""Most languages that one text counts as."""

_SHORTEST_NAME: Final = 2
_NAME_ENDING: Final = re.compile(
    r"(?:(?<=ск|ст|ов|ев|ин|ын)(?:ого|ому|ым|им|ыми|ими)|[оеи]?й|[ое]ю|[ое]м|[аеиоуыэюя])\Z"
)
_FLEETING: Final = {"павел": "павл", "лев": "лв", "любов": "любв"}
"""Stems of names that lose a vowel before endings, without soft signs."""

_APOSTROPHES: Final = str.maketrans("\u2018\u02bc\uff07\u2019", "''''")
_ELIDED_BEFORE: Final = frozenset({"french", "italian"})


def languages_of(text: str, text_terms: Collection[str]) -> tuple[str, ...]:
    """Return the languages other than English that a text may be in, given its terms; none for most, three at most.

    Function words and letters vote; of the languages with the most votes all are returned, if they exceed English.
    """
    if text.isascii() and _deciding_terms().isdisjoint(text_terms):
        return ()
    voting = _voting_terms().intersection(text_terms)
    english_votes = len(stop_terms().intersection(text_terms))
    if text.isascii() and len(voting) <= english_votes:
        return ()
    languages_by_term = _languages_by_term()
    votes: dict[int, int] = {}
    for term in voting:
        for position in languages_by_term[term]:
            votes[position] = votes.get(position, 0) + 1
    if not text.isascii():
        languages_by_letter = _languages_by_letter()
        letter_counts = Counter(
            position
            for letter in set(text[:_READ_CHARACTERS].lower())
            for position in languages_by_letter.get(letter, ())
        )
        for position, count in letter_counts.items():
            votes[position] = votes.get(position, 0) + min(count, _MOST_LETTERS)
    most_votes = max(votes.values(), default=0)
    if not most_votes or most_votes <= english_votes:
        return ()
    return tuple(STEMMED[position] for position in sorted(votes) if votes[position] == most_votes)[:_AT_ONCE]


def is_function_word(word: str, language: str) -> bool:
    """Tell whether a word, as written, is a function word or an auxiliary of a language, and so no subject.

    An accent tells words apart (Spanish `té`, `te`); without any, it may have been left out.
    """
    small = word.lower()
    return small in _bare_words(language) or (small.isascii() and small in _bare_ascii_words(language))


@cache
def function_terms(language: str) -> frozenset[str]:
    """Return the terms of a language's function words; none for English, which has `myria.text.words.stop_terms`."""
    return frozenset(terms(FUNCTION_WORDS.get(language, "")))


@cache
def _bare_words(language: str) -> frozenset[str]:
    return frozenset(f"{FUNCTION_WORDS.get(language, '')} {AUXILIARIES.get(language, '')}".split())


@cache
def _bare_ascii_words(language: str) -> frozenset[str]:
    """Return the words of `_bare_words` without their accents."""
    return frozenset(map(folded, _bare_words(language)))


def stems(words: TextWords, languages: Sequence[str]) -> list[str]:
    """Return stems of words in these languages as `language:stem`, in document order, without function words."""
    languages_read = [(_stem_cache(language), function_terms(language)) for language in languages]
    if len(languages_read) == 1:
        ((stem_cache, functions),) = languages_read
        pairs = zip(words.surfaces, words.terms, strict=True)
        surfaces = [surface for surface, term in pairs if term not in functions]
        return list(chain.from_iterable(map(stem_cache.__getitem__, surfaces)))
    return [
        stem
        for surface, term in zip(words.surfaces, words.terms, strict=True)
        for stem_cache, functions in languages_read
        if term not in functions
        for stem in stem_cache[surface]
    ]


def stem_of(surface: str, language: str) -> tuple[str, ...]:
    """Return the marked stem of a word as written, in a tuple; two for a Russian name, none without a letter."""
    return _stem_cache(language)[surface]


@cache
def _stem_cache(language: str) -> WordCache[tuple[str, ...]]:
    """Return the cache of a language's marked stems, by word as written."""
    return WordCache(partial(_marked_stems, language))


def _marked_stems(language: str, surface: str) -> tuple[str, ...]:
    """Return the marked stem of a word; for a capitalised Russian word also that of the name, marked with `^`."""
    word = surface.lower()
    if not word.isascii():
        word = ucd_3_2_0.normalize("NFC", word.translate(_APOSTROPHES))
    if "'" in word:
        word = _without_elision(word, language)
    if len(word) > MAX_TERM_CHARACTERS or not (word.isalpha() or any(map(str.isalpha, word))):
        return ()
    stem = f"{language}:{folded(stemmer(language).stemWord(word))}"
    if language == "russian" and surface[:1].isupper():
        return stem, f"{language}:^{_russian_name(folded(word))}"
    return (stem,)


def _russian_name(name: str) -> str:
    """Return the part that all cases of a Russian name have in common.

    Snowball's stemmer takes the ends of some names for those of adjectives and verbs (Иван, Никита, Татьяна), and keeps
    vowels that fall out (Павел, Павла; Лев, Льва). Two names may come to the same: it is for finding alone.
    """
    stem = name.replace("ь", "")
    while (shorter := _NAME_ENDING.sub("", stem)) != stem and len(shorter) >= _SHORTEST_NAME:
        stem = shorter
    return _FLEETING.get(stem, stem)


def _without_elision(word: str, language: str) -> str:
    """Return a word without what is elided before it (French, Italian) or joined to it (Turkish) by an apostrophe."""
    head, _, tail = word.partition("'")
    return tail if language in _ELIDED_BEFORE and tail else head


@cache
def _languages_by_letter() -> dict[str, tuple[int, ...]]:
    """Return the positions in `STEMMED` of the languages that each letter is a sign of."""
    positions: dict[str, list[int]] = {}
    for language, letters in _LETTERS.items():
        for letter in letters:
            positions.setdefault(letter, []).append(STEMMED.index(language))
    return {letter: tuple(indexes) for letter, indexes in positions.items()}


@cache
def _voting_terms() -> frozenset[str]:
    """Return the terms that are function words of any language."""
    return frozenset(_languages_by_term())


@cache
def _deciding_terms() -> frozenset[str]:
    """Return the voting terms that are no stop words: without one of them no language has more votes than English."""
    return _voting_terms() - stop_terms()


@cache
def _languages_by_term() -> dict[str, tuple[int, ...]]:
    """Return the positions in `STEMMED` of the languages of which each term is a function word."""
    positions: dict[str, list[int]] = {}
    for position, language in enumerate(STEMMED):
        for term in function_terms(language):
            positions.setdefault(term, []).append(position)
    return {term: tuple(indexes) for term, indexes in positions.items()}
