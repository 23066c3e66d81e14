"""Days in questions and in texts: which of several memories is of the day that is meant, and what holds by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from myria.index import Corpus, Doc, LooseBlock, build, decode
from myria.index.pack import pack
from myria.search.question import Question
from myria.search.ranking import rank

Told = tuple[str, str]
"""When something was told (RFC 3339), and what."""


def _us(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp()) * 1_000_000


def _offset(moment: str) -> int:
    given = datetime.fromisoformat(moment).utcoffset()
    assert given is not None
    return round(given.total_seconds()) // 60


def _docs(told: Sequence[Told]) -> list[Doc]:
    return [
        Doc.of_payload(
            {"text": text, "speaker": "Ana"},
            event_seq=seq,
            timestamp=_us(moment),
            utc_offset=_offset(moment),
            channel="chat",
        )
        for seq, (moment, text) in enumerate(told, 1)
    ]


def _tail(told: Sequence[Told]) -> Corpus:
    return Corpus(participants=("Ana",), tail=LooseBlock().extended(_docs(told)))


def _block(told: Sequence[Told]) -> Corpus:
    return Corpus(participants=("Ana",), blocks=(decode(build(_docs(told))),))


def _both(told: Sequence[Told]) -> Corpus:
    docs = _docs(told)
    return Corpus(participants=("Ana",), blocks=(decode(build(docs[::2])),), tail=LooseBlock().extended(docs[1::2]))


LANES = pytest.mark.parametrize("lane", [_tail, _block, _both])
Lane = Callable[[Sequence[Told]], Corpus]


def _ask(text: str, corpus: Corpus, *, now: str | None = None) -> list[int]:
    question = Question(text=text, now=None if now is None else _us(now), utc_offset=0 if now is None else _offset(now))
    return [hit.event_seq for hit in rank(question, corpus).hits]


PAINTED = (
    ("2026-03-10T12:00:00+00:00", "Ana painted the small door red."),
    ("2026-03-12T12:00:00+00:00", "Ana painted the gate blue."),
    ("2026-03-20T12:00:00+00:00", "Ana painted the fence white."),
)


@LANES
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What did Ana paint on 12 March 2026?", 2),
        ("What did Ana paint on March 12?", 2),
        ("What did Ana paint on the 12th of March?", 2),
        ("What did Ana paint on 2026-03-20?", 3),
        ("What did Ana paint on 10 March?", 1),
        ("What did Ana paint on 2026-03-12?", 2),
    ],
)
def test_the_day_itself_stands_before_the_days_around_it(lane: Lane, question: str, first: int) -> None:
    """And of those the nearer before the farther."""
    found = _ask(question, lane(PAINTED))
    assert found[0] == first
    if first == 1:
        assert found == [1, 2, 3]


@LANES
def test_the_farther_from_the_day_the_later(lane: Lane) -> None:
    """Nothing was told on the day itself: the evening after it stands before what was told a week later."""
    assert _ask("What did Ana paint on 9 March?", lane(PAINTED)) == [1, 2, 3]


DENTIST = (
    ("2026-11-18T09:00:00+00:00", "The appointment with the tax office went fine."),
    ("2026-11-19T09:00:00+00:00", "I have an appointment with the dentist tomorrow at 3pm."),
    ("2026-11-20T09:00:00+00:00", "The weather is lovely."),
    ("2026-11-25T09:00:00+00:00", "I made an appointment with the plumber."),
)


@LANES
@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("tomorrow at 3pm", "Which appointment do I have on 20 November?"),
        ("tomorrow at 3pm", "What appointment was on 20 November 2026?"),
        ("next Friday", "What appointment is on 2026-11-20?"),
        ("the day after tomorrow", "Which appointment is on November 21st?"),
        ("in two weeks", "Which appointment do I have on 3 December?"),
        ("on 7 January", "Which appointment do I have on 7 January 2027?"),
        ("on 7 January", "Which appointment do I have on 7 January?"),
    ],
)
def test_a_text_counts_for_the_day_that_it_means(lane: Lane, said: str, asked: str) -> None:
    """Reckoned from the day on which it was told, and not for the day on which it was."""
    moment, text = DENTIST[1]
    told = (DENTIST[0], (moment, text.replace("tomorrow at 3pm", said)), *DENTIST[2:])
    assert _ask(asked, lane(told))[0] == 2


@LANES
def test_what_was_told_on_a_day_of_another_gives_way(lane: Lane) -> None:
    """Both were told on the 19th, and one of them is about the 20th."""
    told = (
        ("2026-11-19T09:00:00+00:00", "Tomorrow I have lunch with Bob."),
        ("2026-11-19T18:00:00+00:00", "I had lunch with Carla in town."),
    )
    assert _ask("With whom did I have lunch on 19 November?", lane(told))[0] == 2
    assert _ask("With whom did I have lunch on 20 November?", lane(told))[0] == 1


@LANES
def test_what_is_to_come_is_found_by_the_day_it_is_asked_for(lane: Lane) -> None:
    """Whoever asks for tomorrow asks for what was told of that day."""
    told = (
        ("2026-11-16T09:00:00+00:00", "My flight to Porto leaves on Friday."),
        ("2026-11-17T09:00:00+00:00", "My flight from Oslo was late."),
        ("2026-11-18T09:00:00+00:00", "I like a flight with a window."),
    )
    assert _ask("Which flight do I have tomorrow?", lane(told), now="2026-11-19T08:00:00+00:00")[0] == 1


AWAY = (
    ("2026-03-09T10:00:00-07:00", "Ana painted the big door green."),
    ("2026-03-10T10:00:00-07:00", "Ana painted the small door red."),
    ("2026-03-12T22:30:00-07:00", "Ana painted the gate blue."),
)


@LANES
@pytest.mark.parametrize(
    ("question", "now", "first"),
    [
        ("What did Ana paint yesterday?", "2026-03-10T22:00:00-07:00", 1),
        ("What did Ana paint today?", "2026-03-10T22:00:00-07:00", 2),
        ("What did Ana paint yesterday?", "2026-03-11T01:00:00-07:00", 2),
        ("What did Ana paint last Monday?", "2026-03-15T23:00:00-07:00", 1),
        ("What did Ana paint two days ago?", "2026-03-12T23:00:00-07:00", 2),
        ("What did Ana paint on 12 March?", None, 3),
        ("What did Ana paint today?", None, 3),
    ],
)
def test_days_are_those_of_the_place(lane: Lane, question: str, now: str | None, first: int) -> None:
    """Relative days are those of `now` and, without it, of the newest event; a named day is that of the writer."""
    assert _ask(question, lane(AWAY), now=now)[0] == first


@LANES
def test_tomorrow_is_the_writers_tomorrow(lane: Lane) -> None:
    """Said at eleven in the evening of the 9th in Los Angeles, when it was the 10th in UTC."""
    told = (
        ("2026-03-09T23:00:00-07:00", "Tomorrow I see the doctor."),
        ("2026-03-10T23:00:00-07:00", "Tomorrow I see the banker."),
    )
    assert _ask("Whom do I see on 10 March?", lane(told))[0] == 1
    assert _ask("Whom do I see on 11 March?", lane(told))[0] == 2


RENT = (
    ("2026-01-05T12:00:00+00:00", "The rent of our flat is 900 euros."),
    ("2026-05-20T12:00:00+00:00", "From 1 June the rent of our flat is 950 euros."),
    ("2026-05-22T12:00:00+00:00", "The neighbours have a new cat."),
)


@LANES
@pytest.mark.parametrize(
    ("said", "before", "after"),
    [
        ("From 1 June the rent of our flat is 950 euros.", "2026-05-31", "2026-06-01"),
        ("Starting next Monday the rent of our flat is 950 euros.", "2026-05-24", "2026-05-25"),
        ("As of June 15th the rent of our flat is 950 euros.", "2026-06-14", "2026-06-15"),
        ("The rent of our flat is 950 euros from next month on.", "2026-05-31", "2026-06-01"),
        ("The rent of our flat is 950 euros, effective 2026-07-01.", "2026-06-30", "2026-07-01"),
    ],
)
def test_an_announced_change_holds_from_its_day(lane: Lane, said: str, before: str, after: str) -> None:
    """Until then what it will replace is so; from then on it comes first."""
    corpus = lane((RENT[0], (RENT[1][0], said), RENT[2]))
    asked = "How much is the rent of our flat?"
    assert _ask(asked, corpus, now=f"{before}T12:00:00+00:00")[0] == 1
    assert _ask(asked, corpus, now=f"{after}T12:00:00+00:00")[0] == 2


@LANES
def test_a_question_for_a_later_day_gets_what_holds_by_then(lane: Lane) -> None:
    """The day that is asked for decides, and not the one on which is asked."""
    now = "2026-05-23T12:00:00+00:00"
    assert _ask("How much is the rent of our flat on 3 June 2026?", lane(RENT), now=now)[0] == 2
    assert _ask("From when on is the rent of our flat 950 euros?", lane(RENT), now=now)[0] == 2
    assert _ask("How much will the rent of our flat be?", lane(RENT), now=now)[0] == 2


def test_blocks_that_share_a_pack_find_days_as_well() -> None:
    """Offsets and days go through packs unchanged."""
    blocks = [(7, build(_docs(AWAY))), (9, build(_docs(DENTIST)))]
    packed = pack(blocks)
    alone = [decode(raw) for _, raw in blocks]
    assert packed.utc_offset.tolist() == [offset for view in alone for offset in view.utc_offset.tolist()]
