"""Which phrases a receipt proves the absence of, and that they are found however a place writes them."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.erasure.words import PhraseDigests, PhraseFinder, phrases
from tests.support.counts import examples

KEY = bytes(range(32))
TEXT = "The quokka\nzanzibar pier\tcost 4711,80 in café Łódź"


def finder(text: str, *, sieved: bool = True) -> PhraseFinder:
    hashing = PhraseDigests(KEY)
    return PhraseFinder(KEY, {hashing.digest(one): hashing.sieve(one) if sieved else None for one in phrases(text)})


@pytest.mark.parametrize(
    "written",
    [
        TEXT,
        orjson.dumps({"text": TEXT}).decode(),
        json.dumps({"text": TEXT}),
        json.dumps({"reply": json.dumps({"text": TEXT})}),
        f"before {TEXT.upper()} after",
    ],
)
@pytest.mark.parametrize("sieved", [True, False])
def test_phrases_are_found_in_every_way_of_writing(written: str, *, sieved: bool) -> None:
    """As text, as JSON with escapes, as JSON within JSON, in capitals, with and without sieves: all of them."""
    (found,) = finder(TEXT, sieved=sieved).find([written])
    assert found == {PhraseDigests(KEY).digest(phrase) for phrase in phrases(TEXT)}
    assert len(found) >= 6


def test_no_phrase_reaches_from_one_text_into_the_next() -> None:
    """Words that end one text and begin another are no phrase; the text that has one is told from the others."""
    found = finder("quokka zanzibar pier").find(["a quokka", "zanzibar pier", "", "quokka zanzibar pier", "quokka"])
    assert [len(digests) for digests in found] == [0, 0, 0, 1, 0]
    assert finder("quokka zanzibar pier").find([]) == []


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(alphabet='ab1 \n\\"é', max_size=30), max_size=5), st.text(alphabet="ab1 é", max_size=30))
def test_the_sieve_loses_nothing(texts: list[str], erased: str) -> None:
    """What is found with sieves is what is found without."""
    assert finder(erased).find(texts) == finder(erased, sieved=False).find(texts)
