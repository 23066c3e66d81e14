"""Text analysis: pinned tokenizer and stemmer, so that indexes and plans are equal on every machine (trap 11)."""

from myria.text.words import (
    MAX_TERM_CHARACTERS,
    TextWords,
    Token,
    is_stopword,
    stop_ids,
    term_id,
    term_ids,
    terms,
    tokens,
    words_in,
)

__all__ = [
    "MAX_TERM_CHARACTERS",
    "TextWords",
    "Token",
    "is_stopword",
    "stop_ids",
    "term_id",
    "term_ids",
    "terms",
    "tokens",
    "words_in",
]
