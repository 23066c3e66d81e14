"""The language of a text is that of its function words, however few of them are looked at."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from myria.analysis import is_stopword, words_in
from myria.analysis.function_words import FUNCTION_WORDS
from myria.analysis.languages import function_terms
from myria.planning import unspaced
from myria.planning.wording import ENGLISH, UNKNOWN, Language, Votes, _language_at, _may_be_unspaced

LIKELY = (ENGLISH, UNKNOWN, *map(_language_at, range(0, len(FUNCTION_WORDS), 5)))

_STOP_WORDS = st.sampled_from("the and of to is in that it was for you with on are".split())  # noqa: SIM905
_OTHERS = st.sampled_from("kiln glaze embassy visa 1984 12 harbour".split())  # noqa: SIM905
_OF_ONE_LANGUAGE = st.sampled_from(list(FUNCTION_WORDS.values())).flatmap(
    lambda words: st.lists(st.sampled_from(words.split()), max_size=5)
)
# A few words of one language beside as many of English: what decides is a word more or less.
_TEXTS = st.tuples(st.lists(_STOP_WORDS, max_size=4), _OF_ONE_LANGUAGE, st.lists(_OTHERS, max_size=3)).map(
    lambda parts: " ".join(word for part in parts for word in part)
)


def counted(texts: Sequence[str], likely: Language | None) -> str:
    """The language of texts by counting every word of theirs for every language."""
    terms = [
        term
        for text in texts
        for surface, term in zip(words_in(text).surfaces, words_in(text).terms, strict=True)
        if not surface.isdigit()
    ]
    stopwords = sum(map(is_stopword, terms))
    votes = {name: sum(term in function_terms(name) for term in terms) for name in FUNCTION_WORDS}
    if likely is None:
        best, most = ("english" if stopwords * 8 >= len(terms) else "unknown"), stopwords
    else:
        best, most = likely.name, max(stopwords, 0 if likely is ENGLISH else votes.get(likely.name, 0)) + 2
    for name, count in votes.items():
        if count > max(1, most):
            best, most = name, count
    return best


@given(st.lists(_TEXTS, min_size=1, max_size=4), st.sampled_from([None, *LIKELY]))
def test_a_language_is_told_as_by_counting_every_word(texts: list[str], likely: Language | None) -> None:
    votes = Votes.sum([Votes.of(words_in(text)) for text in texts])
    assert votes.language(likely).name == counted(texts, likely)
    assert [Votes.of(words_in(text)).language(likely).name for text in texts] == [
        counted([text], likely) for text in texts
    ]


@given(st.lists(_TEXTS, min_size=1, max_size=4), _TEXTS, st.sampled_from([None, *LIKELY]))
def test_words_that_are_added_one_by_one_count_as_those_of_texts(
    texts: list[str], more: str, likely: Language | None
) -> None:
    votes = Votes.sum([Votes.of(words_in(text)) for text in texts])
    for term, surface in zip(words_in(more).terms, words_in(more).surfaces, strict=True):
        if not surface.isdigit():
            votes.add(term, 1)
    assert votes.language(likely).name == counted([*texts, more], likely)
    assert Votes.sum([votes]).language(likely).name == counted([*texts, more], likely)


def test_every_character_of_a_script_without_spaces_is_looked_for() -> None:
    """The quick look that keeps most texts from the expressions of such scripts misses no character of theirs."""
    every = map(chr, (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000))
    assert [character for character in every if unspaced.is_in(character) and not _may_be_unspaced(character)] == []
