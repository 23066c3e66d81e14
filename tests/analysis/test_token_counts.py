"""Tokens as models count them, and a bound that holds where nothing can count them."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.text.model_tokens import byte_counter, token_counter
from tests.support.counts import examples

_SCRIPTS = [
    "We decided to fire the kiln on Friday.",
    "金曜日に窯を焚くことに決めました。",
    "금요일에 가마를 굽기로 했다",
    "👩🏽‍🚀🔥🏺 emoji 👍",
    "def fire(kiln: Kiln) -> None:\n    kiln.heat(to=1_200)  # °C\n",
]


@pytest.mark.parametrize("text", _SCRIPTS)
def test_bytes_are_never_fewer_than_tokens(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallback is true for every script: no budget is exceeded because the encoder is away."""
    exact = token_counter()
    token_counter.cache_clear()
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    fallback = token_counter()
    token_counter.cache_clear()
    assert (exact.name, fallback.name) == ("o200k", "bytes")
    assert 0 < exact.count(text) <= fallback.count(text)


@settings(deadline=None, max_examples=examples(100))
@given(
    text=st.one_of(
        st.sampled_from(_SCRIPTS).map(lambda text: text * 5), st.text(st.characters(codec="utf-8"), max_size=200)
    ),
    limit=st.integers(0, 60),
)
def test_a_shortened_text_fits_and_is_a_beginning(text: str, limit: int) -> None:
    """Whatever the script, the bound holds, and what is cut says so."""
    counter = token_counter()
    shown = counter.shortened(text, limit)
    assert counter.count(shown) <= limit
    assert shown in (text, "") or (shown.endswith("…") and text.startswith(shown[:-1]))


@settings(deadline=None, max_examples=examples(50))
@given(
    text=st.one_of(st.sampled_from(_SCRIPTS).map(lambda text: text * 300), st.text(st.characters(codec="utf-8"))),
    limit=st.integers(0, 400),
)
def test_a_bounded_count_is_exact_up_to_its_limit(text: str, limit: int) -> None:
    """However long the text is, and whether it was counted before."""
    for counter in (token_counter(), byte_counter()):
        exact = counter.count(text)
        for _ in range(2):
            bounded = counter.bounded(text, limit)
            assert bounded == exact if exact <= limit else bounded > limit
        assert counter.within(text, limit) == (exact if exact <= limit else None)
