"""Text to terms, in any language and for any string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.text import MAX_TERM_CHARACTERS, TextWords, is_stopword, term_id, terms, tokens, words_in

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "She was painting; he paints PAINTED walls.",
            ["she", "was", "paint", "he", "paint", "paint", "wall"],
        ),
        ("Caroline's 3 dogs don\u2019t bark", ["carolin", "3", "dog", "don't", "bark"]),
        ("café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("東京都", ["東", "京", "都", "東京", "京都"]),
        ("猫", ["猫"]),
        ("한국어", ["한국", "국어"]),
        ("\u1112\u1161\u11ab국", ["한국"]),
        ("ｶﾞｷﾞ", ["ガギ"]),
        ("ไทย", ["ไท", "ทย"]),
        ("Ёлка ёлка елка", ["елка", "елка", "елка"]),
        ("ＡＢＣ １２", ["abc", "12"]),
        ("... !!! \U0001f389 \u2764\ufe0f", []),
        ("\ud800abc\udfff", ["abc"]),
        ("", []),
    ],
)
def test_terms_of_many_languages(text: str, expected: list[str]) -> None:
    """Words are folded and stemmed, scripts without spaces give pairs, punctuation and emoji give nothing."""
    assert terms(text) == expected


@given(ANY_TEXT)
def test_every_string_has_terms(text: str) -> None:
    """No string raises; terms are short, never empty, and agree with tokens, which point at their place."""
    found = tokens(text)
    assert [token.term for token in found] == terms(text)
    for token in found:
        assert 0 < len(token.term) <= MAX_TERM_CHARACTERS
        assert text[token.start : token.end] == token.surface
        assert -(2**63) <= term_id(token.term) < 2**63


@given(ANY_TEXT | st.text(st.characters(codec="ascii"), max_size=200))
def test_words_are_tokens_in_columns(text: str) -> None:
    """The words of a text are its tokens, field by field, and can be taken out by their places."""
    words = words_in(text)
    assert words.tokens() == tokens(text)
    assert len(words) == len(tokens(text))
    assert words.at(range(1, len(words), 2)).tokens() == tokens(text)[1::2]
    assert TextWords.of(tokens(text)).tokens() == tokens(text)


@given(st.text(st.characters(codec="ascii"), max_size=200))
def test_plain_text_has_the_same_words_beside_other_letters(text: str) -> None:
    """What is read quickly because it is ASCII is read as it would be beside a letter that is not."""
    assert tokens(f"{text}\né")[:-1] == tokens(text)


@given(st.lists(ANY_TEXT, max_size=5))
def test_lines_do_not_touch(parts: list[str]) -> None:
    """A line break always separates terms, so that texts can be joined before they are analysed."""
    assert terms("\n".join(parts)) == [term for part in parts for term in terms(part)]


@pytest.mark.parametrize(
    "piece", ["a", "a'", "'", "e\u0301", "\u0301", "京", "ก\u0e48", "\u0e48", " a", "\u1160", "ﷺ", "ß"]
)
def test_a_text_built_to_annoy_is_tokenized(piece: str) -> None:
    """256 KiB of it: what takes time by the square of the length would not end before the test is given up."""
    text = piece * (262_144 // len(piece.encode()))
    found = terms(text)
    assert all(len(term) <= MAX_TERM_CHARACTERS for term in found)


def test_stop_words() -> None:
    """Words of sentence structure are stop words in any form, words of subjects are not."""
    assert all(is_stopword(term) for term in terms("This was very much what you don't have"))
    assert not any(is_stopword(term) for term in terms("painting race camp Sunday 2023 京都"))


def test_term_ids_are_pinned() -> None:
    """A term's identity never changes: stored search blocks depend on it."""
    assert term_id("paint") == -8595147557043160442


@given(st.lists(st.sampled_from([*"ab1 '._-", "\x01", *"\u2019\u2014\u20ac\u2764", "\U0001f600", "\ufe0f", "\u200d"])))
def test_signs_beyond_ascii_are_read_as_letters_beyond_ascii_are(parts: list[str]) -> None:
    """A text of plain words with emoji, marks and typographic signs has the words it has before a foreign letter."""
    text = "".join(parts)
    assert tokens(f"{text} ж") == [*tokens(text), ("ж", "ж", len(text) + 1, len(text) + 2)]
