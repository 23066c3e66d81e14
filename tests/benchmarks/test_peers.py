"""The peers' table: what a system is asked, and what its figures are made of; test_parts.py runs the command."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peer_picture import MARKS, picture
from benchmarks.peer_systems.systems import SYSTEMS, Event, Place, Substrings, content_words
from benchmarks.peers import Asked, GoldMemory, Message, found_figures


def message(number: int, text: str) -> Message:
    """Return a message of Ada's."""
    payload = {"speaker": "Ada", "text": text}
    return Message(
        number=number,
        conversation="ada-bob",
        arguments={"payload": payload, "timestamp": "2025-02-03T18:00:00+00:00", "participants": ["Ada", "Bob"]},
    )


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("text", "I moved to Porto."),
        ("speaker", "Ada: I moved to Porto."),
        ("speaker and date", "Ada (3 February 2025): I moved to Porto."),
    ],
)
def test_a_message_has_the_form_that_is_asked_for(form: str, text: str) -> None:
    """Speaker and date stand before what was said, as somebody would write them who keeps plain texts."""
    assert message(1, "I moved to Porto.").text(form) == text


def test_figures_count_gold_events_among_the_first() -> None:
    """Recall is the share of a question's gold among the first k, and MRR the place of the first."""
    asked = Asked(text="Where?", conversation="ada-bob", participants=("Ada", "Bob"))
    memory = GoldMemory(
        messages=tuple(message(number, "words") for number in range(1, 21)),
        questions=(asked, asked),
        gold=(frozenset({1, 9}), frozenset({3})),
        categories=("multi-hop", "single-hop"),
    )
    answers = [[2, 1, 4, 5, 6, 9], [7, 8]]
    figures = found_figures(memory, answers)
    assert figures["R@5"] == pytest.approx((0.5 + 0) / 2)
    assert figures["R@10"] == pytest.approx((1 + 0) / 2)
    assert figures["MRR"] == pytest.approx((1 / 2 + 0) / 2)
    assert (figures["multi-hop R@10"], figures["single-hop R@10"]) == (1.0, 0.0)


def test_substrings_find_the_text_with_most_words_of_the_question(tmp_path: Path) -> None:
    """Within a conversation the text that holds most words comes first, the newest among equals."""
    system = Substrings(Place(folder=tmp_path, dsns={}, vectors={}))
    said = {1: "a blue kite", 2: "a red boat", 3: "another red boat", 4: "a red kite"}
    system.add([Event(number=at, conversation="a", text=text, arguments={}) for at, text in said.items()])
    system.add([Event(number=9, conversation="b", text="a red kite", arguments={})])
    assert system.search("Is the red kite there?", "a", ["Ada"]) == [4, 3, 2, 1]


def test_every_system_says_what_it_is() -> None:
    """Each has a title of its own and ranks by words, by vectors or by both; stop words are not asked for."""
    assert len({system.title for system in SYSTEMS.values()}) == len(SYSTEMS)
    assert {system.uses for system in SYSTEMS.values()} == {"words", "vectors", "both"}
    assert content_words("What did Ada's kite cost?") == ["ada", "kite", "cost"]


def test_the_picture_has_a_row_for_each_system_of_the_report() -> None:
    """It is sound XML that names the systems of the report and no others."""
    figures = dict.fromkeys(MARKS, 0.5)
    drawn = ElementTree.fromstring(picture({"machine": {}, "bm25s": figures, "myria": figures}))  # noqa: S314 - our own
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {system.title for system in SYSTEMS.values()} & set(texts) == {"bm25s", "Myria"}
