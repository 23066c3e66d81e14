"""Vectors are compared exactly, and what they are worth to a ranking does not depend on what is not seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.index import Corpus, Doc, LooseBlock
from myria.index.vectors import ABSENT, WHOLE, Near, VectorRows, quantised
from myria.search.plan import meaning
from myria.search.question import Question
from myria.search.ranking import rank

SIZE = 8
MINUTE = 60_000_000


def vector(*of: float) -> bytes:
    """Return a vector of these first components."""
    made = quantised([*of, *[0.0] * (SIZE - len(of))])
    assert made is not None
    return made


def corpus(*texts: str, first: int = 1) -> Corpus:
    """Return one conversation, an hour between its turns, numbered from `first`."""
    docs = [
        Doc.of_payload(
            {"text": text, "speaker": "ana"},
            event_seq=number,
            timestamp=number * 60 * MINUTE,
            channel="chat",
            type="message",
        )
        for number, text in enumerate(texts, first)
    ]
    return Corpus(participants=("ana", "ben"), tail=LooseBlock().extended(docs))


@given(
    rows=st.lists(st.lists(st.integers(-127, 127), min_size=SIZE, max_size=SIZE), min_size=1, max_size=9),
    asked=st.lists(st.integers(-127, 127), min_size=SIZE, max_size=SIZE),
)
def test_likeness_is_the_cosine_of_whole_numbers(rows: list[list[int]], asked: list[int]) -> None:
    """What is computed with floats is the whole-number cosine, to the last bit."""
    held = VectorRows.of([(at, np.array(row, dtype=np.int8).tobytes()) for at, row in enumerate(rows)], SIZE)
    found = held.likeness(np.array(asked, dtype=np.int8).tobytes(), np.arange(len(rows) + 1))

    def length(values: list[int]) -> int:
        return max(1, math.isqrt(sum(value * value for value in values) * 65_536))

    expected = [
        (sum(a * b for a, b in zip(row, asked, strict=True)) << 31) // (length(row) * length(asked)) for row in rows
    ]
    assert found.tolist() == [*expected, int(ABSENT)]


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [1.0, math.nan], [math.inf, 1.0], [1.0] * 4_097])
def test_a_vector_that_says_nothing_is_none(vector: list[float]) -> None:
    """Empty, zero, endless and overlong vectors are refused where they arrive."""
    assert quantised(vector) is None


def test_a_text_is_found_by_its_meaning_alone() -> None:
    """A question that shares no word with its answer finds it where vectors stand beside the words."""
    talk = corpus("I went to the cinema", "peanuts make my throat swell", "the train was late", "we painted the fence")
    held = VectorRows.of([(1, vector(1)), (2, vector(0, 1)), (3, vector(1, 0, 1)), (4, vector(1, 0, 0, 1))], SIZE)
    question = Question(text="urticaria")
    assert rank(question, talk).hits == ()
    near = Near(question=vector(0.1, 1), documents=held)
    assert rank(question, talk, near=near).hits[0].event_seq == 2


def test_words_still_lead_where_a_vector_says_the_opposite() -> None:
    """The text that holds all words of a question stays first beside one that is merely alike."""
    talk = corpus("the blue kiln reaches 1300 degrees", "warm things are nice", "rain again", "tea or coffee")
    held = VectorRows.of([(1, vector(0, 1)), (2, vector(1)), (3, vector(0, 0, 1)), (4, vector(0, 0, 0, 1))], SIZE)
    near = Near(question=vector(1), documents=held)
    assert rank(Question(text="degrees of the blue kiln"), talk, near=near).hits[0].event_seq == 1


def test_documents_without_a_vector_or_with_one_of_another_length_count_by_their_words() -> None:
    """Where no vector fits, the answer is the answer without vectors."""
    talk = corpus("the blue kiln", "the red kiln", "rain again")
    question = Question(text="blue kiln")
    plain = rank(question, talk)
    for held in (VectorRows.of([], SIZE), VectorRows.of([(1, b"\1\2"), (2, b"\3\4")], SIZE)):
        assert rank(question, talk, near=Near(question=vector(1), documents=held)) == plain


SMALL_TALK = ("I went to the cinema", "we painted the fence", "tea or coffee", "rain again", "the train was late") * 4


def with_vectors(talk: Corpus, *alike: int) -> Near:
    """Return a question's vector with those of a talk: some texts are alike to it, and the others to nothing."""
    rows = [
        (int(seq), vector(1, 0.01 * seq) if seq in alike else vector(0, *[0.0] * (seq % 5), 1))
        for seq in talk.laid_out.seq.tolist()
    ]
    return Near(question=vector(1), documents=VectorRows.of(rows, SIZE))


def test_a_long_text_counts_by_its_meaning_less_than_a_short_one() -> None:
    """What was written at length is alike to most questions about its subject; its meaning alone still finds it."""
    long = " ".join(f"advice{number}" for number in range(400))
    talk = corpus(long, *SMALL_TALK, "always add a test when I ask for code", *SMALL_TALK)
    cosines = {1: 1.6, 22: 0.6}
    rows = [(seq, vector(cosines.get(seq, 0), 0.8)) for seq in talk.laid_out.seq.tolist()]
    near = Near(question=vector(1), documents=VectorRows.of(rows, SIZE))
    found = [hit.event_seq for hit in rank(Question(text="write me a parser"), talk, near=near).hits]
    assert found[0] == 22
    assert 1 in found


def test_asked_for_before_meaning_moves_none_that_words_found() -> None:
    """What it was and what it became are alike in meaning: words order them, and meaning adds what no word finds."""
    talk = corpus("the rent is due Monday", *SMALL_TALK, "rent goes out on a Friday each month", "I paid the landlord")
    near = with_vectors(talk, 22, 23)
    question = Question(text="when was the rent due before?")
    found = [hit.event_seq for hit in rank(question, talk, near=near).hits]
    assert found[0] == 1
    assert 23 in found
    assert rank(Question(text="rent"), talk, near=near).hits[0].event_seq == 22


def test_hidden_vectors_move_no_score() -> None:
    """A vector of an event that is not visible changes no byte of a ranking."""
    talk = corpus("the blue kiln", "the red kiln", "rain again")
    seen = [(1, vector(1)), (2, vector(0, 1)), (3, vector(0, 0, 1))]
    question = Question(text="pottery oven")
    answers = [
        rank(question, talk, near=Near(question=vector(1), documents=VectorRows.of(rows, SIZE)))
        for rows in (seen, [*seen, (9, vector(1)), (10, vector(-1))])
    ]
    assert answers[0] == answers[1]
    assert answers[0].hits


def test_unlike_texts_are_no_answers_in_a_small_memory() -> None:
    """Of three texts that have nothing to do with a question none stands out."""
    talk = corpus("I went to the cinema", "the train was late", "we painted the fence")
    held = VectorRows.of([(1, vector(1, 0.02)), (2, vector(0, 0.02, 1)), (3, vector(0, 0.02, 0, 1))], SIZE)
    assert rank(Question(text="nut intolerance"), talk, near=Near(question=vector(0, 1), documents=held)).hits == ()


ROWS = st.lists(st.one_of(st.none(), st.lists(st.integers(-127, 127), min_size=2, max_size=2)), min_size=1, max_size=40)


def rows_of(components: list[list[int] | None]) -> list[tuple[int, bytes]]:
    """Return numbered vectors, far from the origin in one direction, of documents that have some."""
    return [(at, np.array([127, *row], dtype=np.int8).tobytes()) for at, row in enumerate(components, 1) if row]


def gains_of(talk: Corpus, rows: list[tuple[int, bytes]]) -> dict[int, int]:
    """Return by event_seq how far documents stand out to one question."""
    gains, *_ = Near(question=b"\x7f\x14\x05", documents=VectorRows.of(rows, 3)).measured(talk)
    return dict(zip(talk.laid_out.seq.tolist(), gains.tolist(), strict=True))


@given(components=ROWS)
def test_how_far_documents_stand_out_depends_on_what_is_visible_alone(
    components: list[list[int] | None],
) -> None:
    """Not on vectors of hidden ones."""
    texts = ["tea"] * len(components)
    whole = gains_of(corpus(*texts), rows_of(components))
    hidden = [(1_000, b"\x7f\x14\x05"), (1_001, b"\x81\x00\x00")]
    assert gains_of(corpus(*texts), [*rows_of(components), *hidden]) == whole


@given(components=ROWS)
def test_nearer_documents_stand_out_no_less(components: list[list[int] | None]) -> None:
    """Equal vectors count alike, the order is that of the cosines, and what has no vector counts nothing."""
    rows = rows_of(components)
    found = gains_of(corpus(*["tea"] * len(components)), rows)
    like = VectorRows.of(rows, 3).likeness(b"\x7f\x14\x05", np.arange(1, len(components) + 1)).tolist()
    by_likeness = sorted(zip(like, found.values(), strict=True))
    assert [gain for _, gain in by_likeness] == sorted(found.values())
    assert not any(gain for cosine, gain in by_likeness if cosine == ABSENT)
    assert all(len({gain for cosine, gain in by_likeness if cosine == one}) == 1 for one in like)


def band(least: float, most: float, *others: float) -> tuple[Corpus, list[tuple[int, bytes]]]:
    """Return sixty texts whose cosines to (1, 0) lie evenly between two, and further ones with these cosines."""
    cosines = [*np.linspace(least, most, 60).tolist(), *others]
    rows = [(at, vector(cosine, math.sqrt(1 - cosine**2))) for at, cosine in enumerate(cosines, 1)]
    return corpus(*["tea or coffee"] * len(rows)), rows


def stretched(value: float, least: float) -> float:
    """Return where a cosine is when what is above the least one is stretched to the whole."""
    return (value - least) / (1 - least)


def test_in_a_narrow_band_of_cosines_the_nearest_stands_out() -> None:
    """A model that finds much between any two texts is weighed as one that finds nothing between unlike ones."""
    question = Question(text="swollen airway")
    talk, rows = band(0.75, 0.80, 0.85)
    hits = rank(question, talk, near=Near(question=vector(1), documents=VectorRows.of(rows, SIZE))).hits
    assert hits[0].event_seq == 61
    narrow = Near(question=vector(1), documents=VectorRows.of(rows, SIZE)).measured(talk)[0].tolist()
    wide_talk, wide_rows = band(0.0, stretched(0.80, 0.75), stretched(0.85, 0.75))
    wide = Near(question=vector(1), documents=VectorRows.of(wide_rows, SIZE)).measured(wide_talk)[0].tolist()
    assert narrow == pytest.approx(wide, abs=64)
    assert narrow[-1] > 2 * 256


def test_where_all_texts_are_equally_near_none_stands_out() -> None:
    """Neither many texts with one cosine nor a single one far above 0 are pulled apart by a hair."""
    for cosine in (0.2, 0.8, 1.0):
        talk, rows = band(cosine, cosine)
        near = Near(question=vector(1), documents=VectorRows.of(rows, SIZE))
        assert near.measured(talk)[0].tolist() == [0] * 60
    talk, rows = band(0.97, 0.9701)
    near = Near(question=vector(1), documents=VectorRows.of(rows, SIZE))
    assert max(near.measured(talk)[0].tolist()) == 0


@given(cosines=st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_where_some_cosine_is_not_above_zero_nothing_is_stretched(cosines: list[float]) -> None:
    """Models that find nothing between unlike texts are weighed by their cosines as they are."""
    rows = [(at, vector(cosine, math.sqrt(1 - cosine**2))) for at, cosine in enumerate([*cosines, -0.1], 1)]
    held = VectorRows.of(rows, SIZE)
    talk = corpus(*["tea"] * len(rows))
    like = held.likeness(vector(1), talk.laid_out.seq).tolist()
    count = len(like) + 8
    mean = sum(like) // count
    squares = sum((one - mean) ** 2 for one in like) + 8 * mean * mean
    deviation = max(WHOLE * 6 // 100, math.isqrt(squares // count))
    expected = [min(1536, max(0, (one - mean - deviation) * 256 // deviation)) for one in like]
    assert Near(question=vector(1), documents=held).measured(talk)[0].tolist() == expected


def test_of_few_texts_all_may_answer() -> None:
    """A single text that is near to a question is found: its cosine alone does not tell what the model finds in any."""
    talk = corpus("peanuts make my throat swell")
    held = VectorRows.of([(1, vector(0.6, 0.8))], SIZE)
    assert rank(Question(text="nut intolerance"), talk, near=Near(question=vector(1), documents=held)).hits


def test_orders_by_time_hold_words_and_no_vectors() -> None:
    """The newest and oldest matches are those that hold a word."""
    talk = corpus("the blue kiln", "the red kiln", "rain again")
    held = VectorRows.of([(1, vector(0, 1)), (2, vector(0, 1)), (3, vector(1))], SIZE)
    near = Near(question=vector(1), documents=held)
    found = rank(Question(text="kiln"), talk, order="newest", near=near)
    assert [hit.event_seq for hit in found.hits] == [2, 1]


@pytest.mark.parametrize(
    ("text", "embedded"),
    [
        ("What is Ana's favourite colour?", "What is favourite colour?"),
        ("Ben, what did ana paint?", ", what did paint?"),
        ("What did they paint?", "What did they paint?"),
    ],
)
def test_visible_names_are_left_out_of_what_is_embedded(text: str, embedded: str) -> None:
    """A name would draw a question's vector to every greeting."""
    assert meaning(Question(text=text), corpus("the blue kiln")) == embedded
