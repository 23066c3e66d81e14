"""What a summary quotes is written so that it can be read back, with its day and speaker, and nothing is cut open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from myria.topics.model import PlanEvent
from myria.topics.quoting import Quoted, clip_quote, quoted, taken_apart
from myria.topics.scope_plan import plan_scope
from myria.topics.subjects.words import latest_of
from tests.planning.generators import MINUTE, SCOPE, SETTINGS, key_of
from tests.planning.test_subjects import full, units_of

DAY = 24 * 60 * MINUTE


def talk_over_midnight(first: int = 0) -> list[PlanEvent]:
    """A talk of one task that begins on 8 May 2023 and goes on the next day."""
    said = [
        (0, "Ana", "The violin is at the luthier in Porto."),
        (5, "Bo", "The violin has a crack in its scroll."),
        (23 * 60, "Bo", "I bring bread and olives tomorrow."),
    ]
    return [
        PlanEvent(
            event_seq=first + place,
            event_id=f"evt_{first + place}",
            key=key_of(f"evt_{first + place}"),
            timestamp=1_683_540_000_000_000 + first * DAY + minutes * MINUTE,
            text=text,
            speaker=speaker,
            task=f"violin {first}",
        )
        for place, (minutes, speaker, text) in enumerate(said)
    ]


async def test_a_quote_of_a_talk_of_several_days_has_its_own_day() -> None:
    """Of a leaf, of a group above it, and of a subject that holds it: the day on which it was said."""
    root, nodes = await plan_scope(SCOPE, talk_over_midnight(), SETTINGS)
    assert root is not None
    leaf = next(node for node in nodes if node.is_leaf)
    assert "On 8 May 2023: Ana: “The violin is at the luthier in Porto.”" in leaf.summary
    events = [*talk_over_midnight(), *talk_over_midnight(first=30)]
    _, nodes = await plan_scope(SCOPE, events, SETTINGS)
    (quote,) = taken_apart(nodes[-1].summary)[0]  # both talks say the same
    assert quote.day == "On 7 June 2023"
    assert quote.words.startswith("The violin")
    subject = next(
        node for node in (await full(units_of(events, SETTINGS))).nodes if node.metadata["names"] == ["violin"]
    )
    assert subject.summary.startswith("Latest, on 7 June 2023: ")
    assert "Last spoken of on 8 June 2023." in subject.summary


@pytest.mark.parametrize(
    ("said", "quotes"),
    [
        (
            ["The oven is set to 90 degrees.", "Grandma buys basil.", "then 95 degrees", "no, 99 degrees"],
            ["no, 99 degrees", "The oven is set to 90 degrees."],
        ),
        (
            ["지붕 수리 견적은 820만원이 나왔어요.", "다시 물어볼게", "견적 910만원"],
            ["견적 910만원", "지붕 수리 견적은 820만원이 나왔어요."],
        ),
        (
            ["checkout scaled to 3 replicas in cluster north", "Latency is high.", "checkout scaled to 6 replicas"],
            ["checkout scaled to 6 replicas", "checkout scaled to 3 replicas in cluster north"],
        ),
        (
            ["The oven is set to 90 degrees.", "Grandma buys basil from the market.", "it is 30 degrees outside"],
            ["Grandma buys basil from the market.", "The oven is set to 90 degrees."],
        ),
        (
            ["The oven is set to 90 degrees.", "Grandma buys basil from the market.", "or 95 degrees?"],
            ["Grandma buys basil from the market.", "The oven is set to 90 degrees."],
        ),
    ],
)
async def test_a_remark_that_only_gives_another_number_is_quoted(said: Sequence[str], quotes: Sequence[str]) -> None:
    """The newest one, beside what it changes, however short; a question or a number of something else is none."""
    events = [
        PlanEvent(
            event_seq=place,
            event_id=f"evt_{place}",
            key=key_of(f"evt_{place}"),
            timestamp=place * MINUTE,
            text=text,
            speaker="Ana",
        )
        for place, text in enumerate(said)
    ]
    _, nodes = await plan_scope(SCOPE, events, SETTINGS)
    (leaf,) = [node for node in nodes if node.is_leaf]
    assert [quote.words for quote in taken_apart(leaf.summary.partition(" UTC. ")[2])[0]] == quotes


@pytest.mark.parametrize(
    ("summary", "read"),
    [
        (
            "Latest, on 16 March 2026: Jo: “It moved.” From 1 May 2026: “It is open.” "
            "Before: on 3 March 2026: “No: yes.”",
            [
                ("Latest,", "on 16 March 2026", "Jo", "It moved."),
                ("", "From 1 May 2026", "", "It is open."),
                ("Before:", "on 3 March 2026", "", "No: yes."),
            ],
        ),
        (
            "Ana and Bo, 3 March 2026, 13:30–13:34 UTC. Ana: “Hot.” “Cold …”",
            [("Ana and Bo, 3 March 2026, 13:30–13:34 UTC.", "", "Ana", "Hot."), ("", "", "", "Cold …")],
        ),
        (
            "Ana: 8 conversations, from 2 to 3 May 2026. On 3 May 2026: Bo: “Hot.” On 2 May 2026: “Cold.”",
            [
                ("Ana: 8 conversations, from 2 to 3 May 2026.", "On 3 May 2026", "Bo", "Hot."),
                ("", "On 2 May 2026", "", "Cold."),
            ],
        ),
        (
            "Latest, on 16 March 2026: Jo: “It moved.” Last spoken of on 17 March 2026.",
            [("Latest,", "on 16 March 2026", "Jo", "It moved.")],
        ),
        (
            "user:7 and a.b@c.org, 3 March 2026. user:7: “Hot.” On 2 May 2026: a.b@c.org: “Cold.” user:7: “No.”",
            [
                ("user:7 and a.b@c.org, 3 March 2026.", "", "user:7", "Hot."),
                ("", "On 2 May 2026", "a.b@c.org", "Cold."),
                ("", "", "user:7", "No."),
            ],
        ),
        ("They said “hot” and then “cold”.", []),
        ("They agree on “hot”", []),
        ("Spoken of on 3 May 2026.", []),
    ],
)
def test_a_summary_is_taken_apart(summary: str, read: list[tuple[str, str, str, str]]) -> None:
    """Into its quotes with what stands before each; sentences of a model's own are left whole."""
    quotes, rest = taken_apart(summary)
    assert [(quote.lead, quote.day, quote.speaker, quote.words) for quote in quotes] == read
    assert rest == ("" if read and not summary.endswith(".") else summary if not read else summary.rpartition("” ")[2])


def test_marks_within_a_quote_are_single_ones() -> None:
    """So that what is quoted within a quote does not end it."""
    text = quoted("Ana", "She said “no” twice", most=100)
    assert text == "Ana: “She said ‘no’ twice”"
    read = Quoted(lead="Two, now.", day="", speaker="Ana", words="She said ‘no’ twice")
    assert taken_apart(f"Two, now. {text}") == ([read], "")


def test_a_quote_that_is_cut_still_ends() -> None:
    """Within the bound, with its mark."""
    text = "Latest: “a b c d e f g h i j k l”"
    for limit in range(12, len(text)):
        cut = clip_quote(text, limit)
        assert len(cut) <= limit
        assert cut.count("“") == cut.count("”")
    assert clip_quote(text, len(text)) == text


def test_the_latest_state_may_say_before() -> None:
    """What somebody said is never taken for what a summary says of the past."""
    latest = "Latest, on 16 March 2026: Jo: “Then. Before: it was on 3 March.”"
    assert latest_of(f"{latest} Before: on 3 March 2026: “No.”") == latest
    assert latest_of(latest) == latest
