"""Which kept statements may say anew what others said: told by form, in any language, and never by subject alone."""

from __future__ import annotations

from itertools import combinations

import pytest

from myria.notes.current import ComparedNote, KeptStatement, SoughtWords, newest_above, replaced
from myria.text.changes import tells_of_change
from tests.support.changing_facts import BLIND, SEEN, Change

APART = """
Ana is vegetarian
Ana is from Porto
Ana was born in 1987
The standup is at 9:30
Standup notes are kept in Confluence
The staging database is on host alpha
The production database is on host alpha
My dentist is Petra Novak
My manager is Petra Novak
To deploy, tag first
The deploy of the billing service must be approved by Petra
The billing service deploy window is Tuesday from 9 to 11
Rent is paid on the first
The rent is 900 euros
I prefer short answers
I prefer dark mode
Ana is allergic to penicillin
Ben is allergic to nuts
Der Hund heißt Bello
Der Hund frisst kein Huhn
Marta vive en Sevilla
Marta trabaja en un banco
La reunión del equipo es los lunes
La reunión de padres es los jueves
本社は渋谷にあります
本社の電話番号は03-1234です
由紀さんの好きな飲み物は紅茶です
由紀さんの誕生日は5月3日です
""".strip().splitlines()


def is_told(change: Change) -> bool:
    """Tell whether the newer statement is known as one, where the question is asked."""
    return KeptStatement.of(change.newer).replaces(KeptStatement.of(change.older), SoughtWords.of(change.question))


@pytest.mark.parametrize("changes", [SEEN, BLIND], ids=["seen", "blind"])
def test_what_says_a_fact_anew_is_known(changes: tuple[Change, ...]) -> None:
    """All but one of each half at least."""
    assert len(changes) - sum(map(is_told, changes)) <= 1


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I live in Lisbon", "I moved to Porto"),
        ("Paul habite à Lyon", "Paul a déménagé à Nantes"),
        ("Офис находится на улице Ленина 5", "Офис переехал на проспект Мира 12"),
        ("I prefer tea in the morning", "I prefer coffee in the morning"),
    ],
)
def test_what_shares_few_words_is_known_where_it_tells_of_a_move_or_a_taste(older: str, newer: str) -> None:
    """Without a question, and not the other way round."""
    assert KeptStatement.of(newer).replaces(KeptStatement.of(older))
    assert not KeptStatement.of("Ana moved to Rome").replaces(KeptStatement.of("Ana is allergic to nuts"))


def test_what_is_about_the_same_and_says_something_else_is_not_taken_for_it() -> None:
    """No statement of these replaces another, whichever came first."""
    said = list(map(KeptStatement.of, APART))
    wrong = [
        (APART[one], APART[other])
        for one, other in combinations(range(len(said)), 2)
        if said[one].replaces(said[other]) or said[other].replaces(said[one])
    ]
    assert wrong == []


def test_the_same_again_replaces_nothing() -> None:
    """A statement is no other state of itself."""
    assert replaced([KeptStatement.of("The kiln is hot")] * 2) == [[], []]


@pytest.mark.parametrize(
    "text",
    [
        "The office moved to Braga",
        "ab sofort mittwochs",
        "ya no come pollo",
        "担当者が佐藤さんに変わりました",
        "改到周三",
        "Désormais à midi",
    ],
)
def test_words_of_change_are_known_in_many_languages(text: str) -> None:
    """By themselves, whatever they stand beside."""
    assert tells_of_change(text)


@pytest.mark.parametrize("text", ["The office is in Porto", "I know her", "Das Büro ist klein", "会議は月曜日です", ""])
def test_most_texts_tell_of_no_change(text: str) -> None:
    """Parts of words are none."""
    assert not tells_of_change(text)


def test_what_is_asked_for_with_a_sign_is_not_said_anew_without_it() -> None:
    """An emoji or a version that a question names tells apart what else sounds alike."""
    votes = [
        KeptStatement.of(f"{who} for the {colour} tiles.")
        for who, colour in (("Marta voted 🚀", "blue"), ("Jon voted 🐢", "red"))
    ]
    assert not votes[1].replaces(votes[0], SoughtWords.of("who voted 🚀?"))
    works = [KeptStatement.of(f"Python {version} works on the old tablet.") for version in ("3.11.2", "3.12.1")]
    assert not works[1].replaces(works[0], SoughtWords.of("Does Python 3.11.2 work on the old tablet?"))


@pytest.mark.parametrize(
    ("of_herself", "of_another", "question"),
    [
        ("Ana lives in Porto.", "Ana's brother lives in Faro.", "Where does Ana live?"),
        ("Ana moved to Porto.", "Ana's brother lives in Faro.", "Where does Ana live?"),
        ("Ana wohnt in Hof.", "Der Bruder von Ana wohnt in Ulm.", "Wo wohnt Ana?"),
        ("Ana habite à Brest.", "Le frère d'Ana a déménagé à Lyon.", "Où habite Ana ?"),
        ("Ana vive en Vigo.", "La hermana de Ana se ha mudado a Lugo.", "¿Dónde vive Ana?"),
    ],
)
def test_what_is_told_of_a_relation_says_nothing_of_the_person(of_herself: str, of_another: str, question: str) -> None:
    """Neither is an older state of the other, whichever came first and whether or not it is asked for."""
    one, other = KeptStatement.of(of_herself), KeptStatement.of(of_another)
    for asked in (SoughtWords(), SoughtWords.of(question)):
        assert not other.replaces(one, asked)
        assert not one.replaces(other, asked)


def test_a_relation_that_both_statements_are_of_may_be_told_anew() -> None:
    """It is the relation that has moved."""
    older, newer = map(KeptStatement.of, ("Ana's brother lives in Faro.", "Ana's brother moved to Lagos."))
    assert newer.replaces(older)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Server alpha runs Debian 12.", "Server gamma runs Debian 11."),
        ("Invoice 4411 was paid in March.", "Invoice 4412 was paid in April."),
        ("The room B12 holds 14 chairs.", "The room B21 holds 20 chairs."),
        ("Use tabs in the Go repo.", "Use spaces in the Python repo."),
        ("Der Server Nord nutzt Debian 12.", "Der Server Süd nutzt Debian 11."),
    ],
)
def test_what_is_told_of_two_things_of_a_kind_is_no_change(one: str, other: str) -> None:
    """Both still hold, whichever was told last."""
    first, second = KeptStatement.of(one), KeptStatement.of(other)
    assert not second.replaces(first)
    assert not first.replaces(second)


@pytest.mark.parametrize(
    ("older", "newer", "question"),
    [
        ("The choir rehearses in the town hall", "The town hall burnt; the choir sings at the mill", "Where is choir?"),
        (
            "Piet teaches Ada the flute",
            "Piet is on leave, the flute lessons are with Suus",
            "Who teaches Ada the flute?",
        ),
        ("Ons kantoor is in Breda", "Het kantoor in Breda is dicht, we zitten in Tilburg", "Waar is ons kantoor?"),
        ("Ada n'aime pas le fromage", "Depuis mai, le fromage, Ada l'aime bien", "Ada aime-t-elle le fromage ?"),
        ("鍵は田中さんが持っている", "田中さんが休むので、鍵は森さんに渡した", "鍵は誰が持っていますか？"),
    ],
)
def test_what_answers_the_same_question_in_other_words_stands_above_the_older(
    older: str, newer: str, question: str
) -> None:
    """It repeats a quarter of what the older one is about, and a word of the question is part of that."""
    assert KeptStatement.of(newer).replaces(KeptStatement.of(older), SoughtWords.of(question))


@pytest.mark.parametrize(
    ("one", "other", "question"),
    [
        ("Ada plays the flute on Mondays at the mill", "Ada is allergic to wasps", "When does Ada play the flute?"),
        ("Server alpha runs Debian 12.", "Server gamma runs Debian 11.", "What does server alpha run?"),
        ("In Ulm we pay 900 for the flat", "The flat in Hof has a balcony", "What do we pay for the flat in Ulm?"),
        ("Jo's brother lives in Faro", "Mia's brother lives in Goes", "Where does Jo's brother live?"),
        ("Ada lives in Breda", "Ada's sister lives in Goes", "Where does Ada live?"),
        ("The key to the shed hangs behind the clock", "The car key is at Piet's", "Where is the car key?"),
    ],
)
def test_what_tells_something_else_of_one_that_is_asked_for_moves_nothing(one: str, other: str, question: str) -> None:
    """Whichever was kept first: sharing the person or the thing is not enough."""
    first, second = KeptStatement.of(one), KeptStatement.of(other)
    assert not second.replaces(first, SoughtWords.of(question))


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Where is the choir?", 1),
        ("Where was the choir before?", 0),
        ("What was the old place of the choir?", 0),
        ("How old is the choir?", 1),
    ],
)
def test_a_question_for_how_it_was_moves_nothing(question: str, first: int) -> None:
    """The older statement is its answer."""
    texts = ("The choir is in the town hall", "The choir is in the mill")
    answer = [ComparedNote(text=text, at=at, number=at) for at, text in enumerate(texts)]
    order, marks = newest_above(answer, question, now=9)
    assert order[0] == first
    assert marks == ({0: "older"} if first else {})
