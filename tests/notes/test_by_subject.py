"""Recalled memories by subject: said once, in the order of time beneath, and never for more tokens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from myria.notes.fragments import Fragment, text_by_subject
from myria.notes.lines import memory_text
from myria.search.found import FoundSubject
from myria.text.model_tokens import byte_counter, token_counter
from tests.support.counts import examples

DAY = 86_400 * 10**6
BEGIN = 1_771_000_000_000_000
AMPLE = 10_000


def fragment(number: int, text: str, *, at: int, topic_id: str | None = None) -> Fragment:
    return Fragment(
        note_id=None,
        event_id=None if topic_id else f"evt_{number}",
        handle=topic_id or f"e:{number:07}",
        text=text,
        speaker=None if topic_id else "Inês",
        at=BEGIN + at,
        score=100 - number,
        key=(number - 100, 0, number, int(topic_id is not None)),
        lane="topics" if topic_id else "words",
        topic_id=topic_id,
    )


RANKED = (
    fragment(1, "The page of our own opens in March", at=14 * DAY),
    fragment(2, "The oven is repaired", at=DAY),
    fragment(3, "We think of the Kickstarter campaign", at=0),
    fragment(3, "Kickstarter campaign: what it needs, what it costs, and who asked for it", at=0, topic_id="top_1"),
    fragment(4, "A film for the Kickstarter campaign", at=60_000_000),
)
SUBJECT = FoundSubject(
    label="Kickstarter campaign",
    latest="Latest, on 2 Mar 2026: Inês: “The page of our own opens in March”.",
    event_seqs=(1, 3, 4),
    topic_ids=("top_1", "top_2"),
)


def test_a_subject_is_said_once_with_its_memories_in_time_beneath() -> None:
    """It stands where its best memory did; a day that is said is not said again, nor a topic of its own leaves.

    Two memories of one day say the time.
    """
    text = text_by_subject(RANKED, [SUBJECT], token_counter(), AMPLE).text
    assert text.splitlines()[2:-1] == [
        "# Kickstarter campaign",
        "2026-02-13 16:26 Inês: We think of the Kickstarter campaign [e:0000003]",
        "16:27 Inês: A film for the Kickstarter campaign [e:0000004]",
        "2026-02-27 Inês: The page of our own opens in March [e:0000001]",
        "",
        "2026-02-14 Inês: The oven is repaired [e:0000002]",
    ]


def test_a_latest_state_that_no_memory_beneath_tells_is_said_with_it() -> None:
    """Where it was not recalled itself."""
    others = tuple(one for one in RANKED if one.event_seq != 1)
    long_topic = fragment(9, "word " * 60, at=0, topic_id="top_2")
    text = text_by_subject((*others, long_topic), [SUBJECT], token_counter(), AMPLE).text
    assert f"# Kickstarter campaign. {SUBJECT.latest}" in text.splitlines()


def test_one_memory_makes_no_subject() -> None:
    """What nothing else shares stays where it was ranked."""
    alone = FoundSubject(label="Ovens", latest="Latest: warm", event_seqs=(2, 77), topic_ids=())
    assert text_by_subject(RANKED, [alone], token_counter(), AMPLE) == memory_text(RANKED, token_counter(), AMPLE)


@settings(max_examples=examples(60), deadline=None)
@given(
    budget=st.integers(0, 300),
    days=st.lists(st.integers(0, 3), min_size=2, max_size=7),
    label=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30),
    shared=st.sets(st.integers(0, 6)),
    in_bytes=st.booleans(),
)
def test_no_text_costs_more_for_its_subjects(
    budget: int, days: list[int], label: str, shared: set[int], in_bytes: bool
) -> None:
    """Whatever they are called and hold: the same memories are shown, for no more tokens, within the budget."""
    counter = byte_counter() if in_bytes else token_counter()
    ranked = [fragment(at, f"memory {at} of the kiln", at=day * DAY) for at, day in enumerate(days)]
    subject = FoundSubject(label=label, latest=label * 2, event_seqs=tuple(sorted(shared)), topic_ids=())
    plain = memory_text(ranked, counter, budget)
    found = text_by_subject(ranked, [subject], counter, budget)
    assert found.shown == plain.shown
    assert counter.count(found.text) == found.tokens <= plain.tokens <= budget
    for one in ranked[: plain.shown]:
        assert (one.handle in found.text) == (one.handle in plain.text)
