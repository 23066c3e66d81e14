"""The exam of the ranking: what a question counts as, and that every log's questions can be asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.in_memory import Bm25
from benchmarks.kept_notes import ask, keep
from benchmarks.retrieval import Answered, answered, kind_answered, tables, weights_without
from benchmarks.retrieval_logs import CLOSE_NOTES, KINDS, NOTES, Asked, Log, SetMissing, absent, notes, read
from myria.memory import Memory
from myria.settings import Settings
from tests.support.postgres import Database

SAID = (
    ("Ada", "My bicycle is red and stands in the cellar."),
    ("assistant", "A bicycle wants oil on its chain every month."),
    ("Ada", "The kiln at the pottery reaches 1280 degrees."),
    ("Ada", "Thanks, talk to you tomorrow."),
)


def log(*questions: Asked) -> Log:
    """Return a short log with some questions."""
    begin = datetime(2025, 3, 4, 18, tzinfo=UTC)
    events = {
        number: {
            "participants": ["Ada", "assistant"],
            "timestamp": (begin + timedelta(minutes=number)).isoformat(),
            "channel": "chat",
            "source_event_key": str(number),
            "type": "message",
            "payload": {"speaker": speaker, "text": text},
        }
        for number, (speaker, text) in enumerate(SAID, 1)
    }
    return Log(name="bicycle", events=events, questions=questions)


def test_bm25_ranks_by_rare_words_and_leaves_out_what_shares_none() -> None:
    """The text with the rarer word is first, and a text without any of the words is no hit."""
    texts = log().texts()
    assert Bm25(texts).first("Which bicycles are in a cellar?", 10) == (1, 2)
    assert Bm25(texts).first("Who plays the trombone?", 10) == ()


def test_a_question_is_answered_by_the_product_and_by_bm25() -> None:
    """Both find the kiln first, which the user spoke of."""
    (row,) = answered(log(Asked(text="How hot does the kiln get?", gold=frozenset({3}))))
    assert row.recall("product", 5) == row.recall("BM25", 5) == 1.0
    assert row.reciprocal_rank("product") == row.reciprocal_rank("BM25") == 1.0
    assert row.said_by == {3: "user"}


def test_newest_first_wants_the_gold_above_every_wrong_statement() -> None:
    """Places of other hits do not matter, and what is not found is not first."""
    asked = Asked(text="?", gold=frozenset({4}), wrong=frozenset({1, 2}))

    def row(*found: int) -> Answered:
        return Answered(asked=asked, found={"product": found}, said_by={})

    assert row(9, 4, 1).is_newest_first("product")
    assert not row(9, 1, 4).is_newest_first("product")
    assert not row(9, 8).is_newest_first("product")
    assert row(1, 4).is_wrong_first("product")
    assert not row(9, 1).is_wrong_first("product")


def test_the_table_has_a_row_for_each_kind_and_each_speaker() -> None:
    """Questions without an answer are counted apart: they have no recall."""
    asked = log(
        Asked(text="Where does my bicycle stand?", gold=frozenset({1})),
        Asked(text="How often does a chain want oil?", gold=frozenset({2})),
        Asked(text="Who plays the trombone?", gold=frozenset(), category="bicycles"),
    )
    lines = list(tables({"bicycles": answered(asked)}))
    assert lines[2].startswith("| bicycles | 2 |")
    assert "| bicycles | 1 | 1.000 | 1.000 | 2 | 0.000 | 0.000 |" in lines
    assert [line for line in lines if line.startswith("| bicycles | assistant | 1 |")]


def test_data_that_are_not_there_are_told() -> None:
    """A kind outside the project is left out with its reason, the others are asked all the same."""
    assert kind_answered("talk") == "needs locomo-dev/ in the folder of --data"


def test_an_unknown_signal_cannot_be_taken_out() -> None:
    """A figure without a signal must not be one of the whole ranking."""
    with pytest.raises(SystemExit, match="no signal 'rainbow'"):
        weights_without(["rainbow"])


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_mark_of_a_set_is_there_and_no_question_is_asked_twice(kind: str, *, blind: bool) -> None:
    """Gold and wrong statements differ, and so do questions of one log."""
    try:
        logs = KINDS[kind](None, blind=blind)
    except SetMissing:
        return
    for one in logs:
        texts = [question.text for question in one.questions]
        assert len(set(texts)) == len(texts)
        for question in one.questions:
            assert question.gold | question.wrong <= set(one.events)
            assert not question.gold & question.wrong


def test_notes_that_changed_are_asked_apart_from_ordinary_ones() -> None:
    """Each has its gold among the notes of its log; thirty facts changed in every set."""
    for kind, blind in ((NOTES, False), (NOTES, True), (CLOSE_NOTES, False)):
        logs = notes(kind, blind=blind)
        asked = [(log, question) for log in logs for question in log.questions if question.gold]
        assert all(question.gold | question.wrong <= set(log.events) for log, question in asked)
        assert sum(bool(question.wrong) for _, question in asked) >= 30
        assert sum(not question.wrong for _, question in asked) >= 60


async def test_what_is_kept_as_notes_is_asked_by_recall(database: Database) -> None:
    """The figures of notes are those of remember and recall, by the numbers of a log's events."""
    kept = log(Asked(text="How hot does the kiln get?", gold=frozenset({3})))
    async with Memory(database.server_dsn, Settings()) as memory:
        numbers = await keep(memory, kept)
        (found,) = await ask(memory, kept, numbers, 5)
    assert found[0] == 3


@pytest.mark.parametrize("blind", [False, True])
def test_every_log_that_is_asked_for_what_it_does_not_say_is_there(*, blind: bool) -> None:
    """Only logs outside the project, and notes, may be missing here; sixty questions are asked in each half."""
    asked = [entry["log"] for entry in read("absent", blind=blind)["absent"]]
    ours = [name for name in asked if name.partition("/")[0] not in ("talk", "agents", "notes")]
    assert [log.name for log in absent(None, blind=blind)] == [name.partition("/")[2] for name in ours]
    assert sum(len(entry["asked"]) for entry in read("absent", blind=blind)["absent"]) >= 60
