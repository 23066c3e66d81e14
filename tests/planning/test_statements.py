"""The state of a subject: a statement that says something, of the newest conversation that has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from myria.topics.model import Node
from myria.topics.quoting import quotes_of
from myria.topics.subjects.words import latest_of
from tests.planning.generators import SETTINGS, key_of
from tests.planning.test_subjects import full, talk_of, units_of


async def subject(name: str, said: Sequence[tuple[str, str]]) -> Node:
    """The subject of this name over conversations that say one thing each."""
    update = await full(units_of(talk_of(said)))
    return next(node for node in update.nodes if node.is_unit and node.metadata["names"] == [name])


@pytest.mark.parametrize(
    "exclaimed",
    [
        "That violin is gorgeous!",
        "Thanks for showing the violin!",
        "Wow, such a violin!",
        "I can't wait to see the violin.",
        "You always take good care of your violin.",
        "Diese Geige, also die violin, ist so schön!",
    ],
)
async def test_a_state_is_no_exclamation(exclaimed: str) -> None:
    """What was said last gives way to what says something, and is not told as what was before that."""
    node = await subject(
        "violin",
        [("Ana", "My violin has new strings."), ("Ana", "The violin is at the luthier in Porto."), ("Bo", exclaimed)],
    )
    latest, _, before = node.summary.partition(" Before: ")
    state = "Latest, on 4 January 1970: Ana: “The violin is at the luthier in Porto.”"
    assert latest in (state, f"{state} Last spoken of on 7 January 1970.")
    assert before in ("", "on 3 January 1970: Ana: “My violin has new strings.”") or "strings" in before
    assert exclaimed not in node.summary


@pytest.mark.parametrize(
    ("texts", "latest"),
    [
        (
            (
                "The kettle is set to 80 degrees for green tea in the kitchen.",
                "Fine.",
                "The kettle is set to 95 degrees for black tea.",
            ),
            "The kettle is set to 95 degrees for black tea.",
        ),
        (("The kettle is set to 80 degrees for green tea.", "Nice kettle!", "Then 95 degrees."), "Then 95 degrees."),
        (
            ("The kettle costs 40 euros at Ferro.", "The kettle costs 45 euros at Ferro.", "So the kettle is cold."),
            "The kettle costs 45 euros at Ferro.",
        ),
        (
            ("The kettle is set to 80 degrees for green tea in the kitchen.", "We wash the kettle."),
            "The kettle is set to 80 degrees for green tea in the kitchen.",
        ),
    ],
)
async def test_of_like_statements_of_one_talk_the_newest_is_the_state(texts: Sequence[str], latest: str) -> None:
    """Unless it says far less about the subject than an earlier one."""
    before = talk_of([("Ana", "The kettle is new.")])
    talk = [
        replace(event, event_seq=place + 10, event_id=f"evt_{place}", key=key_of(f"evt_{place}"), text=text)
        for place, (event, text) in enumerate(zip(talk_of([("", ""), ("Ana", "")])[3:], texts, strict=False))
    ]
    update = await full(units_of([*before, *talk]))
    node = next(node for node in update.nodes if node.is_unit and node.metadata["names"] == ["kettle"])
    assert [quote.words for quote in quotes_of(latest_of(node.summary))] == [latest]


async def test_an_exclamation_that_says_something_is_a_state() -> None:
    """News are news however loud."""
    said = [("Ana", "My violin has new strings."), ("Bo", "I sold the violin to a museum in Vienna!")]
    assert "“I sold the violin to a museum in Vienna!”" in (await subject("violin", said)).summary


@pytest.mark.parametrize(
    ("name", "older", "newer", "day"),
    [
        (
            "violin",
            "The violin is with Petra in Porto.",
            "From 1 June the violin is at the museum in Vienna.",
            "1 June",
        ),
        ("violin", "The violin is kept in Porto.", "Starting 3 May 1970 the violin is kept in Braga.", "3 May"),
        ("Geige", "Die Geige liegt in Hof.", "Ab dem 1. März 1970 liegt die Geige bei Ben in Ulm.", "1 March"),
        ("violon", "Le violon est chez Petra à Lyon.", "À partir du 2 juin 1970 le violon est à Brest.", "2 June"),
    ],
)
async def test_what_is_announced_is_no_state_yet(name: str, older: str, newer: str, day: str) -> None:
    """What holds until then is the latest state, with the other behind it; alone it is called after its day."""
    summary = (await subject(name, [("Ana", older), ("Ana", newer)])).summary
    assert summary.startswith(f"Latest, on 1 January 1970: Ana: “{older}” From {day} 1970: Ana: “{newer}”")
    alone = await subject("violin", [("Bo", "What a violin!"), ("Ana", "From 1 June the violin is in Vienna.")])
    assert alone.summary.startswith("From 1 June 1970: Ana: “From 1 June the violin is in Vienna.”")


async def test_what_was_announced_for_a_day_that_has_come_is_a_state() -> None:
    """Something was said on that day, or after it."""
    said = [("Ana", "The violin is in Porto."), ("Ana", "From 5 January the violin is in Vienna.")]
    later = [*said, *[("Bo", "What a violin!")] * 2]
    assert (await subject("violin", said)).summary.startswith("Latest, on 1 January 1970: ")
    assert (await subject("violin", later)).summary.startswith("Latest, on 4 January 1970: Ana: “From 5 January")


async def test_where_nobody_says_anything_the_summary_says_when_it_was_spoken_of() -> None:
    """Words about something else are no state of a subject, nor is the label of a talk."""
    said = [("Ana", "What a violin!"), ("Bo", "Such a violin!")]
    assert (await subject("violin", said)).summary == "Spoken of from 1 to 4 January 1970."


async def test_what_an_emitter_hints_need_not_stand_in_the_words() -> None:
    """The newest talk that has the hint tells the state, in whatever words."""
    said = [("Ana", "The crowdfunding of the boxes begins."), ("Bo", "Our own webshop takes 400 orders.")]
    update = await full(units_of(talk_of(said, (("launch_plan", 900),)), SETTINGS))
    (node,) = [node for node in update.nodes if node.is_unit]
    assert node.summary.startswith("Latest, on 4 January 1970: Bo: “Our own webshop takes 400 orders.”")


async def test_what_names_another_thing_of_the_kind_is_no_state() -> None:
    """Of a name of several words those count that tell the most: not every price is that of the kestrel."""
    said = [
        ("Ana", "The kestrel price is 44 euros."),
        ("Ana", "The kestrel price is 94 euros."),
        ("Bo", "What is the kestrel price? The lodestar price is 74 euros."),
    ]
    update = await full(units_of(talk_of(said)))
    (node,) = [node for node in update.nodes if node.is_unit and node.metadata["names"] == ["kestrel price"]]
    assert "Latest, on 4 January 1970: Ana: “The kestrel price is 94 euros.”" in node.summary
    assert "lodestar" not in node.summary
