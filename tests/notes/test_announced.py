"""What is kept of changes to come holds from the day that it says, in recall and in what a session begins with."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from myria.builds.verify import verify
from myria.log.fields import parse_timestamp
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.histories import history
from myria.notes.model import Remembered
from myria.notes.questions import RecallQuery
from myria.settings.planner import PlannerSettings
from tests.support.building import build_now
from tests.support.counts import crossed
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")

CHANGES = (
    ("The rent of the flat is 900 euros.", "From 1 June the rent of the flat is 950 euros.", "How much is the rent?"),
    ("The standup is at 9:30.", "Starting 1 June the standup is at 10:00.", "When is the standup?"),
    ("Marta leads the kiln team.", "As of June 1st Petra leads the kiln team.", "Who leads the kiln team?"),
    ("We ship parcels with Hermes.", "Beginning in June, we ship parcels with DHL.", "With whom do we ship parcels?"),
)

CHANGES_ELSEWHERE = (
    (
        "Der Müll wird dienstags geholt.",
        "Ab dem 1. Juni wird der Müll freitags geholt.",
        "Wann wird der Müll geholt?",
    ),
    ("Le bus part à 7h.", "À partir du 1er juin 2026 le bus part à 8h.", "Quand part le bus ?"),
    (
        "El mercado cierra los lunes.",
        "A partir del 1 de junio el mercado cierra los martes.",
        "¿Cuándo cierra el mercado?",
    ),
    ("Катя ведёт курс.", "С 1 июня курс ведёт Нина.", "Кто ведёт курс?"),
)


async def _keep(memory: Memory, content: str, moment: str, *supersedes: str, **more: Any) -> Remembered:
    notes = Notes(memory.log, content_characters=4_000)
    draft = Draft(content=content, kind="fact", anchor=more.pop("anchor", False))
    now = parse_timestamp(moment)
    return await notes.remember(
        TENANT,
        US,
        draft,
        contract="memento",
        speaker="bot",
        now=now,
        supersedes=supersedes,
        may_see=lambda _: True,
        **more,
    )


async def _keep_all(memory: Memory) -> None:
    for number, (older, newer, _) in enumerate(CHANGES):
        await _keep(memory, older, f"2026-04-0{number + 1}T12:00:00Z")
        await _keep(memory, newer, f"2026-05-1{number + 1}T12:00:00Z")


@pytest.mark.parametrize("is_built", [False, True])
async def test_recall_tells_first_what_holds_when_it_is_asked(
    memory: Memory, database: Database, *, is_built: bool
) -> None:
    """Until the day that was announced the old state stands first, and the new one says from when on it holds."""
    await _keep_all(memory)
    if is_built:
        await build_now(database.builder_dsn)

    async def lines(text: str, moment: str) -> list[str]:
        query = RecallQuery(masks=Masks.containing(US), now=parse_timestamp(moment), text=text)
        return [fragment.written() for fragment in await memory.recall.find(TENANT, query)]

    for older, newer, asked in CHANGES:
        before, after = await lines(asked, "2026-05-31T23:00:00Z"), await lines(asked, "2026-06-01T01:00:00Z")
        assert older in before[0]
        assert any(newer in line and "(holds from 2026-06-01)" in line for line in before[1:])
        assert newer in after[0]
        assert "holds from" not in after[0]
        assert any(older in line and "(older)" in line for line in after[1:])


@pytest.mark.parametrize(("older", "newer", "asked"), CHANGES_ELSEWHERE)
async def test_a_change_is_announced_in_other_languages(memory: Memory, older: str, newer: str, asked: str) -> None:
    """In recall and in what a session begins with, before the day and from it on."""
    await _keep(memory, older, "2026-04-01T12:00:00Z")
    await _keep(memory, newer, "2026-05-11T12:00:00Z")
    masks = Masks.containing(US)
    for moment, first, second in [("2026-05-31T23:00:00Z", older, newer), ("2026-06-01T01:00:00Z", newer, older)]:
        query = RecallQuery(masks=masks, now=parse_timestamp(moment), text=asked)
        assert [fragment.text for fragment in await memory.recall.find(TENANT, query)] == [first, second]
        opening = (await memory.openings.gather(TENANT, masks, now=parse_timestamp(moment), budget=2_000)).text
        assert opening.index(first) < opening.index(second)
        assert (f"{newer} (holds from 2026-06-01)" in opening) == (first == older)


@pytest.mark.parametrize("asked", ["How much will the rent be?", "How much is the rent on 3 June 2026?"])
async def test_a_question_for_a_later_day_is_told_what_holds_by_then(memory: Memory, asked: str) -> None:
    """Asked before the change; the old state stands below, marked."""
    older, newer, _ = CHANGES[0]
    await _keep(memory, older, "2026-04-01T12:00:00Z")
    await _keep(memory, newer, "2026-05-11T12:00:00Z")
    query = RecallQuery(masks=Masks.containing(US), now=parse_timestamp("2026-05-31T23:00:00Z"), text=asked)
    first, second = await memory.recall.find(TENANT, query)
    assert (first.text, second.text, second.change) == (newer, older, "older")


async def test_a_session_begins_with_what_holds_on_its_day(memory: Memory) -> None:
    """What is to come stands below, with its day; from that day on what it replaced is told as older."""
    await _keep_all(memory)

    async def text(moment: str) -> str:
        masks = Masks.containing(US)
        return (await memory.openings.gather(TENANT, masks, now=parse_timestamp(moment), budget=2_000)).text

    before, after = await text("2026-05-31T23:00:00Z"), await text("2026-06-01T01:00:00Z")
    for older, newer, _ in CHANGES:
        assert before.index(older) < before.index(f"{newer} (holds from 2026-06-01)")
        assert after.index(newer) < after.index(older)
        assert after.index("[OLDER]") < after.index(older)
    assert "[OLDER]" not in before
    assert "holds from" not in after


REPLACED_LATER = (
    (
        "The rent of the flat is 900 euros.",
        "From 1 June we pay 950 euros for the flat.",
        "What do we pay for the flat?",
    ),
    *((older, newer, asked) for older, newer, asked in CHANGES[1:3]),
    *CHANGES_ELSEWHERE,
)


@pytest.mark.soak
@pytest.mark.parametrize(("change", "way"), crossed(REPLACED_LATER, [*product((False, True), repeat=2)]))
async def test_what_a_note_replaces_by_its_id_holds_until_the_day_that_it_says(
    memory: Memory, database: Database, change: tuple[str, str, str], way: tuple[bool, bool]
) -> None:
    """In recall and in what a session begins with; from that day on it is gone, and found as superseded."""
    (older, newer, asked), (anchor, is_built) = change, way
    kept = await _keep(memory, older, "2026-04-01T12:00:00Z", anchor=anchor)
    later = [await _keep(memory, newer, "2026-05-11T12:00:00Z", kept.note_id, key="once") for _ in range(2)]
    assert [one.created for one in later] == [True, False]
    if is_built:
        await build_now(database.builder_dsn)
    masks = Masks.containing(US)

    async def told(moment: str, **more: Any) -> list[str]:
        query = RecallQuery(masks=masks, now=parse_timestamp(moment), text=asked, **more)
        return [fragment.written() for fragment in await memory.recall.find(TENANT, query)]

    first, second = await told("2026-05-31T23:00:00Z")
    assert first.startswith(f"2026-04-01 bot: {older}")
    assert f"{newer} (holds from 2026-06-01)" in second
    [only] = await told("2026-06-01T01:00:00Z")
    assert newer in only
    for moment, is_shown in (("2026-05-31T23:00:00Z", True), ("2026-06-01T01:00:00Z", False)):
        opening = (await memory.openings.gather(TENANT, masks, now=parse_timestamp(moment), budget=2_000)).text
        assert (older in opening) == is_shown
        assert newer in opening
    await memory.consolidation.run(TENANT, now=parse_timestamp("2026-06-02T00:00:00Z"))
    replaced = await told("2026-06-02T01:00:00Z", include_superseded=True)
    assert [line for line in replaced if older in line and "superseded by e:" in line]
    told_of = await history(memory.appending, TENANT, kept.note_id, may_see=lambda _: True)
    assert told_of.superseded_by == (later[0].note_id,)
    assert (await verify(memory.appending, TENANT, PlannerSettings())).failed == 0


async def test_what_is_replaced_by_a_note_of_no_day_or_of_a_past_one_is_gone_at_once(memory: Memory) -> None:
    """As ever; and a note that was to end later may be replaced at once, too."""
    masks = Masks.containing(US)
    first = await _keep(memory, "The kiln opens at six.", "2026-05-01T12:00:00Z")
    await _keep(memory, "From 1 June 2026 the kiln opens at seven.", "2026-05-02T12:00:00Z", first.note_id)
    second = await _keep(memory, "The kiln opens at eight.", "2026-05-03T12:00:00Z", first.note_id)
    await _keep(memory, "Since 1 April the kiln opens at nine.", "2026-05-04T12:00:00Z", second.note_id)
    query = RecallQuery(masks=masks, now=parse_timestamp("2026-05-05T12:00:00Z"), text="When does the kiln open?")
    found = [fragment.text for fragment in await memory.recall.find(TENANT, query)]
    assert found == ["Since 1 April the kiln opens at nine.", "From 1 June 2026 the kiln opens at seven."]
