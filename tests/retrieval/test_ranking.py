"""The ranking: what must win, what must not show, and that the same question always gives the same answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.index import BlockNode, Corpus, Doc, LooseBlock, ScopeTable, Timeline, build, decode
from myria.log.payloads import TopicHint
from myria.search.queries import Order
from myria.search.question import Question
from myria.search.ranking import Filters, Key, Ranking, rank
from tests.support.counts import examples

START = int(datetime(2023, 5, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
MINUTE, DAY = 60_000_000, 86_400_000_000

CHAT = [
    ("Anna", 0, "Hey Bob! How was your week?"),
    ("Bob", 1, "Busy, Anna. I finally signed up for a pottery class downtown."),
    ("Anna", 2, "Nice! Do you already know which teacher you get?"),
    ("Bob", 3, "Yes, her name is Ines, she is wonderful."),
    ("Anna", 40 * 24 * 60, "I went hiking in the Alps with my brother, the views were great."),
    ("Bob", 40 * 24 * 60 + 1, "Wow, that sounds great!"),
    ("Anna", 40 * 24 * 60 + 2, "Next time you should come along."),
    ("Bob", 80 * 24 * 60, "My laptop broke, the repair costs 300 euros, ticket zx81k."),
    ("Anna", 80 * 24 * 60 + 1, "Oh no. My computer is slow as well."),
]


def _doc(seq: int, text: str, **fields: Any) -> Doc:
    fields.setdefault("timestamp", START + seq * MINUTE)
    fields.setdefault("channel", "chat")
    payload = {"text": text} | ({"speaker": fields.pop("speaker")} if "speaker" in fields else {})
    return Doc.of_payload(payload, event_seq=seq, **fields)


CHAT_DOCS = [
    _doc(seq, text, speaker=speaker, timestamp=START + minutes * MINUTE)
    for seq, (speaker, minutes, text) in enumerate(CHAT, 1)
]


def _chat() -> Corpus:
    return Corpus(participants=("Anna", "Bob"), tail=LooseBlock().extended(CHAT_DOCS))


def _scopes(*scopes: tuple[tuple[str, ...], Sequence[Doc]]) -> Corpus:
    """Return a corpus of several scopes: the participants and the documents of each."""
    docs = [replace(doc, scope_id=number) for number, (_, docs) in enumerate(scopes, 1) for doc in docs]
    table = ScopeTable(ids=np.arange(1, len(scopes) + 1), participants=tuple(people for people, _ in scopes))
    return Corpus(table=table, tail=LooseBlock().extended(docs))


def _chat_beside(doc: Doc) -> Corpus:
    """Return the chat with another scope of one document."""
    return _scopes((("Anna", "Bob"), CHAT_DOCS), (("Anna", "Cleo"), [doc]))


def _found(ranking: Ranking) -> list[int]:
    return [hit.event_seq for hit in ranking.hits]


def _ask(
    text: str | None, corpus: Corpus | None = None, hints: Sequence[tuple[str, float]] = (), **rest: Any
) -> list[int]:
    question = Question(
        text=text,
        topic_hints=tuple(TopicHint(hint=hint, confidence=confidence) for hint, confidence in hints),
        now=rest.pop("now", None),
    )
    return _found(rank(question, corpus or _chat(), **rest))


def _said(*texts: str) -> Corpus:
    docs = [_doc(seq, text, speaker="Anna", timestamp=START + seq * DAY) for seq, text in enumerate(texts, 1)]
    return Corpus(participants=("Anna", "Bob"), tail=LooseBlock().extended(docs))


def test_a_member_answers_for_its_kind() -> None:
    """Asked for pets, a cat that is named counts; a text that says the word itself counts more."""
    corpus = _said("The train was late again.", "Our cat hid below the sofa.", "My pet is shy.", "Bread is dear.")
    assert _ask("Which pets does Anna have?", corpus) == [3, 2]


def _talk(*turns: tuple[str, int, str]) -> Corpus:
    docs = [
        _doc(seq, text, speaker=speaker, timestamp=START + minutes * MINUTE)
        for seq, (speaker, minutes, text) in enumerate(turns, 1)
    ]
    return Corpus(participants=("Anna", "Bob"), tail=LooseBlock().extended(docs))


def test_an_answer_tells_more_of_the_statement_before_the_question() -> None:
    """What follows a question about a statement is lent more of that statement than what follows a remark."""

    def score_after(between: str) -> int:
        corpus = _talk(
            ("Anna", 0, "Last week I tried a new board game."),
            ("Bob", 1, between),
            ("Anna", 2, "It went on for hours and I lost."),
            ("Bob", 3, "Oh dear."),
        )
        hits = rank(Question(text="How did the board game go that Anna tried?"), corpus).hits
        return next(hit.score for hit in hits if hit.event_seq == 3)

    assert score_after("What was it like?") > score_after("That sounds fine.")


def test_a_text_that_tells_before_it_asks_comes_before_one_that_only_asks() -> None:
    """Of two texts that end in a question, the longer one comes first though the word weighs more in the shorter."""
    corpus = _said(
        "Hello again, and how are you today, and do you still like jazz?",
        "Bread is dear.",
        "We heard jazz down at the harbour until it was late, and what did you do then?",
        "The rain stopped.",
    )
    assert _ask("What about jazz?", corpus) == [3, 1]


def test_a_question_that_asks_for_a_name_prefers_texts_that_name_something() -> None:
    """Asked which one, the text with a name; asked how, the earlier one of two equals."""
    corpus = _said("Anna read a novel on the train.", "The day was grey.", "Anna read a novel by Lem on it.")
    assert _ask("Which novel did she read?", corpus)[0] == 3
    assert _ask("Who wrote the novel she read?", corpus)[0] == 3
    assert _ask("How was the novel she read?", corpus)[0] == 1


@pytest.mark.parametrize(
    "question",
    [
        "How should I plot the tides?",
        "Can you plot the tides?",
        "Please help me plot the tides",
        "Suggest a plot for tides",
    ],
)
def test_a_standing_wish_comes_first_where_help_is_asked_for(question: str) -> None:
    """Asked for something to be done, what is always to be kept to when doing it comes before other talk about it."""
    wish = "Always put blue in a plot of the tides."
    corpus = _said("They once put blue in a plot of tides.", "The day was grey.", wish)
    assert _ask(question, corpus)[0] == 3
    assert _ask("Why did they put it in the plot of the tides?", corpus)[0] == 1


def test_long_talk_that_says_always_is_no_wish() -> None:
    """An answer at length says "always" somewhere and wishes nothing."""
    long = "It always helps to plot tides by moon. " + " ".join(f"advice{number}" for number in range(60))
    corpus = _said("The plot of the tides hung askew.", "The day was grey.", long)
    assert _ask("How should I plot the tides?", corpus)[0] == 1


CHANGED = (
    "I drive an old diesel Golf, it rattles but it never let me down.",
    "The bread was dear today.",
    "The Golf is sold! I picked up the little electric Renault.",
    "My neighbour plays the trumpet.",
)


def test_a_question_about_the_present_finds_what_replaced_a_fact_first() -> None:
    """What tells of the change shares no word with the question, but a rare one with the older statement."""
    assert _ask("Which car does Anna drive?", _said(*CHANGED))[:2] == [3, 1]


def test_a_question_about_before_finds_the_older_statement_first() -> None:
    """Asked for before, nothing is moved."""
    assert _ask("Which car did Anna drive before?", _said(*CHANGED))[0] == 1


SHORT = (
    "The standup is at nine thirty.",
    "The bread was dear today.",
    "We do the standup at a quarter past ten so that Lisbon can join.",
    "My neighbour plays the trumpet.",
)


def test_a_short_later_statement_about_the_same_stands_first() -> None:
    """It has no word of change; what it is about, hardly anything else is."""
    assert _ask("At what time is the standup?", _said(*SHORT))[:2] == [3, 1]


def test_a_long_later_statement_that_touches_the_same_leaves_the_order() -> None:
    """A long text is about many things, of which the standup is but one."""
    loaves = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
    long = " ".join([SHORT[2], *(f"Then I baked loaf number {word}." for word in loaves)])
    assert _ask("At what time is the standup?", _said(SHORT[0], SHORT[1], long, SHORT[3]))[0] == 1


@pytest.mark.parametrize("question", ["Why is the standup at nine?", "How has the standup at nine gone?"])
def test_a_question_that_asks_for_no_state_leaves_the_order(question: str) -> None:
    """Asked why, or what has been, a later statement is newer only where it tells of a change."""
    assert _ask(question, _said(*SHORT))[0] == 1


def test_a_question_about_a_change_finds_both_in_order() -> None:
    """The older statement, then what replaced it."""
    assert _ask("How did the car that Anna drives change?", _said(*CHANGED))[:2] == [1, 3]


def test_a_later_statement_of_the_state_asked_for_stands_first() -> None:
    """It shares no word with the older one, nor with the question: both tell where somebody lives."""
    corpus = _said(
        "I'm living in Lisbon from this month, tiny but bright.",
        "The bread was dear today.",
        "All the boxes are unpacked in Porto.",
        "My neighbour plays the trumpet.",
        "The train was late again.",
    )
    assert _ask("Where does Anna live?", corpus)[:2] == [3, 1]
    assert _ask("Where did Anna live before?", corpus)[0] == 1


def test_what_the_speaker_says_tells_how_much_a_statement_is_about() -> None:
    """What others say of the same kind of thing does not keep a speaker's later statement from being one of it."""
    said = [("Anna", "Our standup is at nine sharp.")] + 56 * [("Bob", "The bread was dear today.")]
    said += 2 * [("Bob", "No standup for me.")]
    said += [("Anna", "Standup got squeezed to a quarter to eleven so the Boston folks can sleep.")]
    docs = [
        _doc(seq, text, speaker=speaker, timestamp=START + seq * DAY) for seq, (speaker, text) in enumerate(said, 1)
    ]
    corpus = Corpus(participants=("Anna", "Bob"), tail=LooseBlock().extended(docs))
    assert _ask("When is Anna's standup?", corpus)[:2] == [60, 1]


NEAR = (
    "The rent for the room is three hundred and ten with everything, so there is nothing that one could complain of.",
    "The bread was dear today.",
    "Well, he wrote about the room again: the rent is three hundred and sixty in all, and not a word why.",
    "The rent is dear in most towns, as they say on the radio, on the train, and wherever people queue for an hour.",
)


def test_a_later_hit_that_is_nearly_as_good_stands_first() -> None:
    """Both are long and none has a word of change; of two states of one thing the present is the newest."""
    assert _ask("How much is the rent for Anna's room?", _said(*NEAR))[:2] == [3, 1]
    assert _ask("How much was the rent for Anna's room at first?", _said(*NEAR))[0] == 1


def test_a_later_hit_that_holds_less_of_the_question_leaves_the_order() -> None:
    """The last one tells of rents, and of no room."""
    assert _ask("How much is the rent for Anna's room?", _said(NEAR[0], *NEAR[1:2], *NEAR[3:]))[0] == 1


def _later(*said: tuple[str, str]) -> Corpus:
    """Return what people said a day apart, among forty days of talk about nothing."""
    idle = ("The bread was dear.", "It rained all day.", "My neighbour plays the trumpet.", "The train was late.")
    lines = [line for one in said for line in (one, *(("Bob", idle[at % 4]) for at in range(10)))]
    docs = [
        _doc(seq, text, speaker=speaker, timestamp=START + seq * DAY) for seq, (speaker, text) in enumerate(lines, 1)
    ]
    return Corpus(participants=("Anna", "Bob"), tail=LooseBlock().extended(docs))


def test_small_signs_together_find_the_newest_state() -> None:
    """The later statement holds an everyday word of the question, as another does, and a number, as the older does."""
    corpus = _later(
        ("Anna", "The shop opens at seven."),
        ("Anna", "I want to open a window."),
        ("Anna", "Nobody comes before eight, so we open at eight and I can sleep."),
    )
    assert _ask("When does the shop open?", corpus)[0] == 23
    assert _ask("When did the shop open at first?", corpus)[0] == 1


def test_what_changed_twice_stands_above_both_older_states() -> None:
    """The last state is about what the second is about, and hardly about the first."""
    corpus = _later(
        ("Anna", "The rate limit of the interface is 100 requests."),
        ("Anna", "We raised the rate limit to 250 requests after the complaint."),
        ("Anna", "After the outage the rate limit went down to 60 requests."),
    )
    ranking = rank(Question(text="What is the rate limit of the interface?"), corpus)
    assert _found(ranking)[0] == 23
    assert set(_found(ranking)[:3]) == {1, 12, 23}
    assert ranking.changed is not None
    assert (ranking.changed.older, ranking.changed.newer) == (1, 23)


def test_a_later_statement_about_nothing_of_it_leaves_the_order() -> None:
    """The same person says later, and as briefly, what shares no word with question or statement."""
    corpus = _later(("Anna", "I study chemistry, second year."), ("Anna", "My bike has a flat tyre."))
    ranking = rank(Question(text="What does Anna study?"), corpus)
    assert (_found(ranking)[0], ranking.changed) == (1, None)


@pytest.mark.parametrize("words", ["these days", "at the moment", "right now", "as of today", "currently"])
def test_words_that_ask_for_the_present_are_not_looked_for(words: str) -> None:
    """They name no day, and what holds them is no better an answer."""
    corpus = _said(*CHANGED, "Right now, at this moment of the day, these are the days: currently it is raining.")
    assert _ask(f"Which car does Anna drive {words}?", corpus) == _ask("Which car does Anna drive?", corpus)


def test_a_question_whether_something_still_is_asks_for_the_present() -> None:
    """What replaced it answers first."""
    assert _ask("Does Anna still drive the diesel Golf?", _said(*CHANGED))[:2] == [3, 1]


def test_a_question_what_made_somebody_do_something_asks_for_no_state() -> None:
    """Its verb is in the past without "did"."""
    assert _ask("What brought Anna to the standup at nine?", _said(*SHORT))[0] == 1


def test_saying_the_same_again_changes_nothing() -> None:
    """A statement that is repeated, with its word of change, is not what replaced it."""
    corpus = _said("I may never eat calamari again.", "The bread was dear today.", "I may never eat calamari again.")
    ranking = rank(Question(text="Does Anna eat calamari?"), corpus)
    assert (_found(ranking)[0], ranking.changed) == (1, None)


def test_what_another_person_says_replaces_nothing() -> None:
    """Bob sold his own Golf: Anna still drives hers."""
    docs = [
        _doc(1, CHANGED[0], speaker="Anna", timestamp=START),
        _doc(2, "The Golf is sold!", speaker="Bob", timestamp=START + DAY),
    ]
    corpus = Corpus(participants=("Anna", "Bob"), tail=LooseBlock().extended(docs))
    assert _ask("Which car does Anna drive?", corpus)[0] == 1


def test_an_earlier_statement_replaces_nothing() -> None:
    """A Golf sold before this one was driven is another one."""
    assert _ask("Which car does Anna drive?", _said(*reversed(CHANGED)))[0] == 4


def test_a_filter_that_leaves_out_what_replaced_a_fact_leaves_the_order() -> None:
    """What may not be shown moves nothing and names nothing."""
    ranking = rank(Question(text="Which car does Anna drive?"), _said(*CHANGED), filters=Filters(until=START + 2 * DAY))
    assert (_found(ranking)[0], ranking.changed) == (1, None)


def test_pages_with_a_moved_hit_are_the_whole_ranking() -> None:
    """The moved hit stands on one page alone, and none is lost where it stood."""
    question, corpus = Question(text="Golf bread: which car does Anna drive?"), _said(*CHANGED)
    whole = _found(rank(question, corpus))
    paged: list[int] = []
    after: Key | None = None
    while hits := rank(question, corpus, limit=1, after=after).hits:
        paged.append(hits[0].event_seq)
        after = hits[0].key
    assert paged == whole
    assert whole[0] == 3


def test_a_kind_of_which_nothing_is_said_finds_nothing() -> None:
    """A member stands for its kind, and no kind for its members: asked for a cat, a pet does not count."""
    corpus = _said("The piano was tuned.", "We bought a violin.")
    assert set(_ask("Which instruments are there?", corpus)) == {1, 2}
    assert _ask("Which theremin?", corpus) == []


def test_words_together_count_more_than_one_of_them_often() -> None:
    """Of equally long texts, the one with both words of the question comes before one with either of them twice."""
    corpus = _said(
        "harbour harbour gulls pier boats nets",
        "bakery bakery rolls oven flour yeast",
        "harbour bakery rolls gulls pier oven",
    )
    assert _ask("the harbour bakery", corpus)[0] == 3


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What class did Bob sign up for?", 2),
        ("Which course did Bob join?", 2),
        ("zx81k", 8),
        ("What is wrong with the ticket ZX81K and the class and the views?", 8),
        ("Where did Anna go on a hike?", 5),
        ("Whose PC is slow?", 9),
        ("What did Anna say about her computer?", 9),
        ("What broke in July 2023?", 8),
    ],
)
def test_what_comes_first(question: str, first: int) -> None:
    """The message that answers comes first, in other words, by its speaker, its date or one rare word."""
    assert _ask(question)[0] == first


def test_an_answer_without_the_words_is_found() -> None:
    """A message that follows the question it answers is found by the question's words."""
    assert 4 in _ask("Who is Bob's teacher?")[:3]


def test_what_lies_ahead_of_the_clock_does_not_move_now() -> None:
    """Relative dates, and months without a year, count from the newest event that is not ahead of the clock."""
    ahead = _chat_beside(_doc(99, "the far future", timestamp=START * 40))
    clock = START + 80 * DAY + 5 * MINUTE
    for question in ("What was said yesterday?", "What happened in July?", "what broke last week"):
        assert _ask(question, _chat(), clock=clock) == _ask(question)
        assert _ask(question, ahead, clock=clock) == _ask(question)


def test_where_everything_lies_ahead_the_newest_counts() -> None:
    """A log that is wholly ahead of the clock, such as a made-up one, is asked as if the clock had passed it."""
    assert _ask("What was said yesterday?", clock=START - DAY) == _ask("What was said yesterday?")


def test_a_page_goes_on_from_the_moment_of_the_first() -> None:
    """The moment told instead of the clock gives the same ranking, however far the clock has gone on."""
    ahead = _chat_beside(_doc(99, "hey", timestamp=START + 90 * DAY))
    question = Question(text="who said hey yesterday", topic_hints=(), now=None)
    first = rank(question, ahead, clock=START + 81 * DAY)
    assert first.newest == START + 80 * DAY + MINUTE
    assert rank(question, ahead, clock=first.newest) == first
    assert rank(question, ahead, clock=START + 91 * DAY).newest is None


def test_a_date_without_other_words() -> None:
    """A question that says only when, or only who and when, gives what was said then."""
    assert set(_ask("What happened in July?")) == {8, 9}
    assert _ask("What did Anna say in July?")[0] == 9
    assert set(_ask("and yesterday?", now=START + 41 * DAY)) == {5, 6, 7}


def test_a_name_without_other_words() -> None:
    """A question that only names somebody gives what they said."""
    assert set(_ask("What did Anna talk about?")[:5]) == {1, 3, 5, 7, 9}


@pytest.mark.parametrize(
    ("between", "far"),
    [("on sunday", [5, 4, 3, 0, 0, 0, 0]), ("on sunday we rode a boat", [3, 3, 3, 0, 0, 0, 0])],
)
def test_the_fewer_words_lie_between_the_farther_messages_lend(between: str, far: list[int]) -> None:
    """Six short messages reach across each other, longer ones less; a silence ends both."""
    corpus = _talk(*(("Anna", minute, between) for minute in range(6)), ("Bob", 300, "the bread was dear"))
    assert Timeline.of(corpus).far.tolist() == far


def test_a_message_far_off_in_a_burst_is_lent_a_share() -> None:
    """What stands three short messages after the one with the word comes before one as far off among long ones."""
    short = [
        ("Anna", 2000, "got a kayak"),
        ("Anna", 2001, "on sunday"),
        ("Bob", 2002, "really"),
        ("Anna", 2003, "its red"),
    ]
    many = "we walked along the river all day and then we took the last train home again"
    long = [("Anna", 0, "got a kayak"), ("Anna", 1, many), ("Bob", 2, many), ("Anna", 3, "its red")]
    found = _ask("What about the kayak?", _talk(*long, *short))
    assert found.index(8) < found.index(4)


def test_a_text_of_few_words_counts_less() -> None:
    """Of two messages beside the one that holds the word, that of one word comes after that of six."""
    corpus = _talk(("Anna", 0, "i got the kayak"), ("Bob", 1, "colour"), ("Anna", 300, "x"))
    other = _talk(("Anna", 0, "i got the kayak"), ("Bob", 1, "red wood with a green stripe"), ("Anna", 300, "x"))
    question = Question(text="What about the kayak?", now=None)
    short, long = (next(hit for hit in rank(question, talk).hits if hit.event_seq == 2) for talk in (corpus, other))
    assert short.score < long.score


def test_an_answer_is_lent_words_and_not_who_spoke() -> None:
    """Asked where somebody went in a month, who says it comes before her answer to a question about it."""
    corpus = _talk(
        ("Anna", 0, "Back home! I was in Lisbon."),
        ("Bob", 1, "How was the weather there?"),
        ("Anna", 2, "Warm and windy."),
        ("Bob", 3, "I have been at work all the time."),
    )
    assert _ask("Where did Anna go in May?", corpus)[0] == 1
    assert _ask("Where did Anna go?", corpus)[0] == 1


def test_named_people_are_boosted_not_required() -> None:
    """Between equal messages the named speaker's wins, by first name and in any case; the other is still there."""
    docs = [
        _doc(1, "I bought a red bicycle", speaker="Anna Berg", timestamp=START),
        _doc(2, "I bought a red bicycle", speaker="Will Cox", timestamp=START + DAY),
    ]
    corpus = Corpus(participants=("Anna Berg", "Will Cox"), tail=LooseBlock().extended(docs))
    assert _ask("which bicycle did ANNA buy", corpus) == [1, 2]
    assert _ask("Which bicycle did Will buy?", corpus) == [2, 1]
    assert _ask("which bicycle will she buy", corpus) == [1, 2]


def test_two_scopes_share_one_scale() -> None:
    """A word rare over everything visible beats one that is rare in its own scope only."""
    one = (("Ada", "Cy"), [_doc(at, "the server deploys again") for at in range(1, 30)])
    two = (("Ada", "Dan"), [_doc(50, "our server"), _doc(51, "the violin lesson", timestamp=START + DAY * 9)])
    assert _ask("server violin", _scopes(one, two))[0] == 51
    assert _ask("server violin", _scopes(two, one))[0] == 51


def test_a_named_participant_prefers_the_scope() -> None:
    """Between equal messages the scope that a named participant belongs to wins."""
    scopes = [(("agent", name), [_doc(seq, "the invoice was paid")]) for seq, name in ((1, "Carla"), (2, "Dana"))]
    assert _ask("Was Dana's invoice paid?", _scopes(*scopes)) == [2, 1]


def test_hints_boost_and_never_filter() -> None:
    """A shared topic hint lifts a message over an equal one; messages without it stay; it finds nothing by itself."""
    docs = [
        _doc(1, "we should decide soon", timestamp=START),
        _doc(2, "we should decide soon", timestamp=START + DAY, hints=[("home renovation", 900)]),
    ]
    corpus = Corpus(participants=("a",), tail=LooseBlock().extended(docs))
    assert _ask("decide", corpus) == [1, 2]
    assert _ask("decide", corpus, hints=[("Home Renovation", 0.8)]) == [2, 1]
    assert _ask("decide", corpus, hints=[("renovation", 0.8)]) == [2, 1]
    assert _ask("zebra", corpus, hints=[("home renovation", 1.0)]) == []
    assert _ask(None, corpus, hints=[("home renovation", 1.0)]) == [2, 1]
    assert _ask(None, corpus, hints=[("gardening", 1.0)]) == [2, 1]


@pytest.mark.parametrize("question", ["xylophone quasar", "???", "\U0001f389", "\ud800"])
def test_no_match_is_an_empty_answer(question: str) -> None:
    """A question none of whose words occur finds nothing."""
    assert rank(Question(text=question), _chat()) == Ranking(hits=())


@pytest.mark.parametrize("question", [None, "", "  \n"])
def test_no_question_is_most_recent_first(question: str | None) -> None:
    """Without a text everything is returned, newest first, later event_seq first among equals."""
    docs = [_doc(seq, "x", timestamp=START) for seq in (3, 1, 2)]
    corpus = Corpus(participants=("a",), tail=LooseBlock().extended(docs))
    assert _ask(question, corpus) == [3, 2, 1]
    assert _ask(question)[:3] == [9, 8, 7]
    assert _ask(question, order="oldest")[:3] == [1, 2, 3]


def test_orders_of_time() -> None:
    """Newest and oldest order the messages that hold a word of the question, and no others."""
    assert _ask("great", order="newest") == [6, 5]
    assert _ask("great", order="oldest") == [5, 6]


def test_filters() -> None:
    """Channel, types, context and time span let through what they say; bounds are since <= t < until."""
    docs = [
        _doc(1, "pay rent", channel="a", type="message", context_id="x"),
        _doc(2, "pay rent", channel="b", type="task", context_id="y"),
        _doc(3, "pay rent", channel="b"),
    ]
    corpus = Corpus(participants=("p",), tail=LooseBlock().extended(docs))
    assert sorted(_ask("rent", corpus, filters=Filters(channel="b"))) == [2, 3]
    assert _ask("rent", corpus, filters=Filters(types=("task", "note"))) == [2]
    assert _ask("rent", corpus, filters=Filters(context_id="x")) == [1]
    assert _ask("rent", corpus, filters=Filters(context_id="z")) == []
    assert _ask(None, corpus, filters=Filters(since=START + 2 * MINUTE, until=START + 3 * MINUTE)) == [2]
    assert len(rank(Question(), corpus, filters=Filters(channel="b")).hits) == 2


def test_internal_events_only_when_given() -> None:
    """Internal events are ranked beside the others when a corpus holds them."""
    corpus = Corpus(
        participants=("p",),
        tail=LooseBlock().extended([_doc(1, "deploy failed")]),
        internal=LooseBlock().extended([_doc(2, "deploy failed: stack trace")]),
    )
    hits = rank(Question(text="deploy"), corpus).hits
    assert {(hit.event_seq, hit.view) for hit in hits} == {(1, 0), (2, 1)}


WORDS = ["paint", "race", "dog", "camp", "lake", "Anna", "Bob", "May", "yesterday", "great?"]
EVENTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), max_size=5), st.integers(0, 300), st.sampled_from(["Anna", "Bob", None])
    ),
    min_size=1,
    max_size=40,
)
QUESTION = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
ORDER: st.SearchStrategy[Order] = st.sampled_from(["relevance", "newest", "oldest"])


def _docs(events: Sequence[tuple[list[str], int, str | None]]) -> list[Doc]:
    return [
        _doc(
            seq,
            " ".join(words),
            speaker=speaker or "",
            timestamp=START + minute * MINUTE,
            hints=[("lake", 500)] if "camp" in words else (),
        )
        for seq, (words, minute, speaker) in enumerate(events, 1)
    ]


@settings(max_examples=examples(150))
@given(EVENTS, QUESTION, ORDER, st.booleans(), st.integers(1, 7))
def test_pages_are_the_whole(
    events: list[tuple[list[str], int, str | None]], text: str, order: Order, hinted: bool, size: int
) -> None:
    """Pages one after the other, each going on after the last hit, are the whole ranking: no repeats, no omissions."""
    docs = _docs(events)
    half = len(docs) // 2
    corpus = _scopes((("Anna", "Bob"), docs[:half]), (("Anna", "Bob", "Cy"), docs[half:]))
    question = Question(text=text, topic_hints=(TopicHint(hint="lake", confidence=0.5),) if hinted else ())
    whole = rank(question, corpus, order=order, limit=1000)
    assert len(whole.hits) == len({hit.event_seq for hit in whole.hits})
    paged: list[Any] = []
    after: Key | None = None
    while True:
        page = rank(question, corpus, order=order, limit=size, after=after)
        if not page.hits:
            break
        paged += page.hits
        after = page.hits[-1].key
    assert tuple(paged) == whole.hits


@settings(max_examples=examples(150))
@given(EVENTS, st.lists(st.integers(1, 9), max_size=20), QUESTION, st.sets(st.integers(1, 40)), st.randoms())
def test_neither_arrival_nor_hidden_events_leave_a_trace(
    events: list[tuple[list[str], int, str | None]],
    steps: list[int],
    text: str,
    hidden: set[int],
    randomness: random.Random,
) -> None:
    """Scores depend on the visible events alone: not on hidden ones, nor on the steps they arrived in."""
    docs = _docs(events)
    visible = [doc for doc in docs if doc.event_seq not in hidden]
    block = LooseBlock()
    queue = list(docs)
    randomness.shuffle(queue)
    for step in [*steps, len(docs)]:
        block, queue = block.extended(queue[:step]), queue[step:]
    mask = ~np.isin(block.seq, sorted(hidden))
    question = Question(text=text, topic_hints=(TopicHint(hint="lake", confidence=0.7),))
    masked = rank(question, Corpus(participants=("Anna",), tail=block, tail_mask=mask), limit=100)
    plain = rank(question, Corpus(participants=("Anna",), tail=LooseBlock().extended(visible)), limit=100)
    assert [(hit.event_seq, hit.score) for hit in masked.hits] == [(hit.event_seq, hit.score) for hit in plain.hits]


@settings(max_examples=examples(50))
@given(EVENTS, QUESTION)
def test_a_kept_corpus_changes_nothing(events: list[tuple[list[str], int, str | None]], text: str) -> None:
    """A corpus that is kept between questions gives the same hits, in which view and document lead to the event."""
    nodes = [BlockNode(rendering_id=bytes([at]) * 32, parent=-1, level=0) for at in range(10)]
    docs = sorted(_docs(events), key=lambda doc: (doc.timestamp, doc.event_seq))
    half = len(docs) // 2
    views = tuple(
        decode(build([replace(doc, leaf=min(at // 5, 9)) for at, doc in enumerate(part)], nodes))
        for part in (docs[:half], docs[half:])
    )
    corpus = Corpus(participants=("Anna",), blocks=views)
    found = rank(Question(text=text), corpus, limit=100)
    assert rank(Question(text=text), corpus, limit=100) == found
    for hit in found.hits:
        assert corpus.parts[hit.view][0].seq[hit.doc] == hit.event_seq


def test_what_many_speakers_changed_is_found_again_in_a_kept_corpus() -> None:
    """What each speaker changed is found in any order, whether the corpus was kept or not."""
    animals = ["otter", "lynx", "heron", "badger", "marten", "stork", "vole"]
    people = [f"Person{number}" for number in range(len(animals))]
    told = [(who, f"The {animal} lives in the barn.") for who, animal in zip(people, animals, strict=True)]
    told += [(people[at - 1], f"The {animal} moved to the river!") for at, animal in enumerate(animals)]
    told += [(who, f"The {animal} moved to the attic!") for who, animal in zip(people, animals, strict=True)]
    docs = [
        _doc(seq, text, speaker=who, timestamp=START + seq * DAY, leaf=0) for seq, (who, text) in enumerate(told, 1)
    ]
    nodes = [BlockNode(rendering_id=b"n" * 32, parent=-1, level=0)]
    kept = Corpus(participants=tuple(people), blocks=(decode(build(docs, nodes)),))
    for at in [*range(len(animals)), *reversed(range(len(animals)))]:
        question = Question(text=f"Where does the {animals[at]} live?")
        found = rank(question, kept)
        assert found.changed is not None
        assert (found.changed.older, found.changed.newer) == (at + 1, at + 1 + 2 * len(animals))
        assert found == rank(question, replace(kept))


@given(st.text(st.characters(codec=None), max_size=300))
def test_any_text_can_be_asked(text: str) -> None:
    """No question raises."""
    rank(Question(text=text), _chat())


def test_a_huge_question_is_cut() -> None:
    """Of a question of a megabyte only the first 8 KiB count, and rare words are not lost among common ones."""
    text = "the great week " * 70_000
    assert _ask("zx81k " + text)[0] == 8
    assert 8 not in _ask(text + " zx81k")[:1]


def test_nothing_visible() -> None:
    """Without scopes, or with empty ones, there is nothing to find."""
    assert rank(Question(text="great"), Corpus()) == Ranking(hits=())
    assert rank(Question(), Corpus(participants=("a",))) == Ranking(hits=())
