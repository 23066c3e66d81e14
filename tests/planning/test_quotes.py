"""A leaf quotes the sentence that says most, and the one from another event that adds most to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from myria.planning.lines import clean
from myria.planning.model import PlanEvent
from myria.planning.phrases import SENTENCE_CHARACTERS, Quote, TextReading, _percent, _sentences
from tests.planning.generators import MINUTE, key_of

_PARTS = st.sampled_from(
    (
        "The gas kiln reached cone ten in nine hours.",
        "Did the glaze craze?",
        "Thanks!",
        "kiln glaze celadon embassy",
        "https://kiln.example/glaze?x=1",
        "`kiln = fire(glaze)`",
        "ERROR: kiln",
        "The embassy wants the visa forms and a bank statement, " * 5,
        "Der Ofen erreichte Kegel zehn.",
        "Visa. Kiln. Glaze.",
        "???",
        "",
        "私は窯に行きました。",
    )
)
_TEXTS = st.lists(st.lists(_PARTS, max_size=4).map(" ".join), min_size=1, max_size=6)


def read_one_by_one(events: list[PlanEvent], reading: TextReading) -> list[Quote]:
    """The quotes of a leaf by reading all of its sentences closely."""
    found: list[tuple[int, int, str, frozenset[str], int, int]] = []
    for position, event in enumerate(events):
        words = reading._words[position]
        for sentence in _sentences(event.text, words, position, reading.scores, may_end=reading._may_end[position]):
            text = clean(event.text[sentence.start : min(sentence.stop, sentence.start + 4 * SENTENCE_CHARACTERS)])
            if text:
                percent = _percent(text, is_suspect=reading._suspect[position])
                found.append((percent, position, text, frozenset(sentence.terms), sentence.weight, sentence.size))
    if not found:
        return []
    percent, at, text, known, weight, size = max(found, key=lambda one: one[4] * one[0] // (12 + one[5]))
    best = Quote(score=weight * percent // (12 + size), position=at, text=text)
    others = [
        Quote(
            score=sum(reading.scores[term] for term in terms - known) * percent // (12 + size),
            position=position,
            text=text,
        )
        for percent, position, text, terms, _, size in found
        if position != at
    ]
    adds = max(others, key=lambda quote: quote.score, default=None)
    return [best, adds] if adds is not None and 3 * adds.score > best.score else [best]


@given(_TEXTS)
def test_quotes_are_those_of_reading_every_sentence_closely(texts: list[str]) -> None:
    events = [
        PlanEvent(
            event_seq=at, event_id=f"evt_{at}", key=key_of(f"evt_{at}"), timestamp=at * MINUTE, text=text, speaker="Ana"
        )
        for at, text in enumerate(texts)
    ]
    (reading,) = TextReading.of_leaves([(events, ["Ana"])])
    assert reading.quotes() == read_one_by_one(events, reading)
