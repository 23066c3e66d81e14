"""The state of a subject: a statement that says something, of the newest conversation that has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from myria.planning.model import Node
from myria.planning.subjects.statements import state_of
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
    assert latest == "Latest, on 4 January 1970: Ana: “The violin is at the luthier in Porto.”"
    assert "January" in before
    assert exclaimed not in node.summary


async def test_an_exclamation_that_says_something_is_a_state() -> None:
    """News are news however loud."""
    said = [("Ana", "My violin has new strings."), ("Bo", "I sold the violin to a museum in Vienna!")]
    assert "“I sold the violin to a museum in Vienna!”" in (await subject("violin", said)).summary


async def test_where_nobody_says_anything_the_newest_talk_is_named() -> None:
    """A subject has a latest state in any case."""
    said = [("Ana", "What a violin!"), ("Bo", "Such a violin!")]
    assert (await subject("violin", said)).summary.startswith("Latest, on 4 January 1970: ")


def test_a_title_that_does_not_name_the_subject_says_what_does() -> None:
    """A leaf that is called otherwise stands after the word by which it is of the subject."""
    (unit,) = units_of(talk_of([("Ana", "We met the mayor beside the harbour bridge with a piano.")]))
    leaf = replace(unit[0].leaf, summary="", label="Harbour bridge and mayor")
    assert state_of(["instrument"], leaf) == "Piano: Harbour bridge and mayor"
