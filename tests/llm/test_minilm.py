"""all-MiniLM-L6-v2 in numpy: texts are split, and vectors computed, as by the libraries it was published for."""

from __future__ import annotations

import numpy as np
import pytest

from myria.index.embeddings.local import LocalModel
from myria.index.embeddings.minilm import MOST_PIECES
from myria.index.embeddings.wordpiece import numbers
from myria.index.vectors import WHOLE, VectorRows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unbelievable naïveté, isn't it?", [23653, 15743, 2618, 1010, 3475, 1005, 1056, 2009, 1029]),
        ("日本語 c++", [1864, 1876, 1950, 1039, 1009, 1009]),
        ("x" * 101 + " ok", [100, 7929]),
        ("tab\tand\x00\u200bzero", [21628, 1998, 6290, 2080]),
        ("ΣΊΣΥΦΟΣ", [1173, 18199, 29733, 29735, 29736, 29730, 29733]),
        ("😀 emoji", [100, 7861, 29147, 2072]),
        ("", []),
    ],
)
def test_texts_are_split_as_the_model_was_trained(text: str, expected: list[int]) -> None:
    """The numbers of word pieces are those that Hugging Face's tokenizers 0.23.3 gives."""
    assert numbers(text, 256) == [101, *expected, 102]


def test_a_text_is_read_up_to_its_first_word_pieces() -> None:
    """What follows the first 256 changes nothing, and its end is marked all the same."""
    begun = numbers("fence " * 300, MOST_PIECES)
    assert len(begun) == MOST_PIECES
    assert begun[-1] == 102
    assert begun == numbers("fence " * 300 + "unseen", MOST_PIECES)


async def test_the_local_model_gives_the_vectors_of_its_reference() -> None:
    """Beginnings of vectors and likenesses are those that onnxruntime 1.32 gave; equal texts have equal bytes."""
    model = LocalModel.installed()
    try:
        texts = ["I am allergic to peanuts", "the train was late", "", "nut intolerance"]
        peanuts, train, nothing, question = await model.embed(texts, within_s=60)
        again = await model.embed(texts[::-1], within_s=60)
    finally:
        await model.close()
    assert nothing is None
    assert peanuts is not None
    assert train is not None
    assert question is not None
    assert again == [question, None, train, peanuts]
    reference = [1, 5, 9, 14, 2, 16, 37, 73, -33, 34, -25, -25]
    assert np.abs(np.frombuffer(peanuts, np.int8)[:12] - np.array(reference)).max() <= 1
    like = VectorRows.of([(1, peanuts), (2, train)], len(question)).likeness(question, np.array([1, 2]))
    assert (like / WHOLE).round(2).tolist() == [0.44, 0.10]
