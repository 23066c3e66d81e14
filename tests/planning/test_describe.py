"""Labels and summaries say what a person would want to know, within their bounds."""

from __future__ import annotations

from typing import Any

from myria.planning.model import LEAF, UNIT_LEVEL, Node, PlanEvent, level_name
from myria.planning.scope import plan_scope, plan_unit
from tests.planning.generators import MINUTE, SETTINGS, key_of

SCOPE = ("ana", "bo", "user_42")
MAY_8 = 1_683_554_160_000_000
"""8 May 2023, 13:56 UTC."""

TALK = (
    ("Ana", "Hi Bo! How have you been?"),
    ("Bo", "Busy, but good. We finally fired the gas kiln on Saturday, and the celadon glaze came out perfect."),
    ("Ana", "Celadon in the gas kiln! Did the glaze craze?"),
    ("Bo", "Not at all. The gas kiln reached cone ten in nine hours."),
    ("Ana", "By the way, my visa interview at the Portuguese embassy is next Thursday."),
    ("Bo", "Did the Portuguese embassy ask for the visa papers in advance?"),
    ("Ana", "Yes, the embassy wants the visa forms and a New York bank statement."),
    ("Bo", "Good luck with the visa interview!"),
)


def talk(*lines: tuple[str | None, str], start: int = MAY_8, first_seq: int = 0, **fields: Any) -> list[PlanEvent]:
    """One event per line, half a minute apart."""
    return [
        PlanEvent(
            event_seq=first_seq + n,
            event_id=f"evt_{first_seq + n:04}",
            key=key_of(f"evt_{first_seq + n:04}"),
            timestamp=start + n * MINUTE // 2,
            text=text,
            speaker=who,
            **fields,
        )
        for n, (who, text) in enumerate(lines)
    ]


def leaves(nodes: list[Node]) -> list[Node]:
    """The leaves among some nodes, in order."""
    return [node for node in nodes if node.node_type == LEAF]


def test_leaves_are_named_by_their_subjects() -> None:
    """Labels are distinctive words and phrases in the form they were said, without names and small talk."""
    kiln, visa = leaves(plan_unit(SCOPE, talk(*TALK), SETTINGS))
    assert "gas kiln" in kiln.label
    assert "celadon glaze" in kiln.label
    assert "visa" in visa.label
    assert "Portuguese embassy" in visa.label
    assert not {"Ana", "Bo", "Busy", "perfect"} & set(kiln.label.replace(",", "").split())


def test_a_leaf_summary_gives_time_speakers_and_central_sentences() -> None:
    """When, who, how much, and the sentences that say most, with who said them."""
    kiln, visa = leaves(plan_unit(SCOPE, talk(*TALK), SETTINGS))
    assert kiln.summary.startswith("8 May 2023, 13:56–13:57 UTC · Ana, Bo · 4 events. ")
    assert "Bo: “We finally fired the gas kiln on Saturday, and the celadon glaze came out perfect.”" in kiln.summary
    assert "Ana: “Yes, the embassy wants the visa forms and a New York bank statement.”" in visa.summary
    assert "How have you been" not in kiln.summary


def test_metadata_counts_words_speakers_and_hints() -> None:
    """Metadata holds weighed keywords, who spoke how often, hints, span and counts."""
    events = talk(*TALK[:4], hints=(("pottery", 700), ("small_talk", 100)))
    metadata = plan_unit(SCOPE, events, SETTINGS)[-1].metadata
    assert metadata["speakers"] == [["Ana", 2], ["Bo", 2]]
    assert metadata["hints"] == [["pottery", 2800], ["small_talk", 400]]
    assert {"kiln", "glaze"} <= {word.lower() for word, _ in metadata["keywords"]}
    assert metadata["keywords"] == sorted(metadata["keywords"], key=lambda pair: (-pair[1], pair[0]))
    assert (metadata["events"], metadata["leaves"], metadata["units"]) == (4, 1, 1)
    assert (metadata["first_at"], metadata["last_at"]) == (MAY_8, MAY_8 + 90_000_000)


def test_a_unit_tells_its_leaves_and_one_sentence() -> None:
    """A unit's label and summary are made of what its leaves are about."""
    unit = plan_unit(SCOPE, talk(*TALK), SETTINGS)[-1]
    assert unit.level == UNIT_LEVEL
    assert "visa" in unit.label
    assert "gas kiln" in unit.label
    assert "gas kiln" in unit.summary
    assert "embassy" in unit.summary
    assert "“" in unit.summary


def test_markers_and_hints_lead() -> None:
    """What a marker says, then what the emitter hinted with confidence, stands first in a label."""
    marked = talk(("Ana", "Sprint 12: the kiln\u2028log"), type="topic_marker") + talk(
        *TALK[1:3], start=MAY_8 + MINUTE, first_seq=5, hints=(("glaze_tests", 900),)
    )
    assert plan_unit(SCOPE, marked, SETTINGS)[-1].label.startswith("Sprint 12: the kiln log, glaze tests, ")
    unsure = talk(*TALK[1:3], hints=(("glaze_tests", 100),))
    assert not plan_unit(SCOPE, unsure, SETTINGS)[-1].label.startswith("glaze tests")


async def test_groups_carry_their_date() -> None:
    """A group is called by its calendar span and its subjects, and lists what lies beneath by date."""
    day = 24 * 60 * MINUTE
    events = talk(*TALK[:4]) + talk(*TALK[4:], start=MAY_8 + 3 * day, first_seq=10)
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    assert root is not None
    top = nodes[-1]
    assert level_name(top.level) == "week"
    assert top.label.startswith("8–11 May 2023: ")
    assert top.summary.startswith("8–11 May 2023 · Ana, Bo · 2 conversations, 8 events. 8 May: ")
    assert "11 May: " in top.summary
    assert "gas kiln" in top.summary
    assert "visa" in top.summary
    _, later = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 20 * day, first_seq=20)], SETTINGS)
    assert later[-1].label.startswith("May 2023: ")
    _, years = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 900 * day, first_seq=20)], SETTINGS)
    assert years[-1].label.startswith("2023–2025: ")


def test_talk_without_words_of_its_own_is_quoted() -> None:
    """Small talk is labelled by what was said, and events without text by their type and date."""
    small = plan_unit(SCOPE, talk(("Ana", "Thanks!"), ("Bo", "Take care, see you soon!")), SETTINGS)[-1]
    assert small.label.startswith("“")
    silent = plan_unit(SCOPE, talk((None, ""), (None, ""), type="door_opened"), SETTINGS)[-1]
    assert silent.label == "door opened, 8 May 2023"


def test_other_languages_are_labelled() -> None:
    """German and Japanese give labels of their own words; a name is kept whole."""
    german = talk(("Ana", "Der Brennofen ist kaputt."), ("Bo", "Den Brennofen repariert Harry Potter."))
    assert "Brennofen" in plan_unit(SCOPE, german, SETTINGS)[-1].label
    japanese = talk((None, "来週の会議は京都です。"), (None, "会議の資料を送ります。"))
    assert "会議" in plan_unit(SCOPE, japanese, SETTINGS)[-1].label
    named = talk(("Ana", "Harry Potter is on tonight."), ("Bo", "Kiln or Harry Potter?"))
    assert "Harry Potter" in plan_unit(SCOPE, named, SETTINGS)[-1].label


def test_identifiers_do_not_take_words_away() -> None:
    """The participant user_42 does not make "user" a name."""
    events = talk((None, "The user interface hides the user menu."), (None, "Every user misses the menu."))
    assert "user" in plan_unit(SCOPE, events, SETTINGS)[-1].label
