"""Texts that only say again what another says: shown once, the newest of them; and texts that only look so."""

from __future__ import annotations

from itertools import combinations

import pytest

from myria.text.restating import told_once

DEPLOY = """
The deploy of the billing service must be approved by Petra.
Petra must approve the deploy of the billing service.
Deploys of the billing service need approval by Petra!
Billing service deploy: Petra has to approve it.
As said, the deploy of billing service must be approved by Petra.
Reminder: the billing service deploy must be approved by Petra.
"""
AGAIN = {
    "deploy": DEPLOY,
    "alarm": """
        The alarm code of the workshop is 4471.
        Note: the alarm code of the workshop is 4471
        the alarm code of the workshop is 4471, as I said before.
        To repeat: the workshop alarm code is 4471!""",
    "german": """
        Der Brennofen wird jeden Freitag von Inês gereinigt.
        Wie gesagt, der Brennofen wird jeden Freitag von Inês gereinigt.
        Zur Erinnerung: Der Brennofen wird jeden Freitag von Inês gereinigt!""",
    "spanish": """
        La llave del horno está en la nevera.
        Recordatorio: la llave del horno está en la nevera
        La llave del horno está en la nevera, repito.""",
    "japanese": """
        本社は渋谷にあります。
        念のため、本社は渋谷にあります
        本社は渋谷にあります！""",
}
APART = """
The rent is 900 euros a month
The rent is 950 euros a month
The rent is 900 dollars a month
Petra must approve the deploy of the billing service
Omar must approve the deploy of the billing service
Petra must not approve the deploy of the billing service
Petra can approve the deploy of the billing service
Petra approved the deploy of the billing service today
Petra never approves the deploy of the billing service
The billing service must approve the deploy for Petra
The token is Ab7
The token is aB7
The laser has 5 mW of power in total
The laser has 5 MW of power in total
The laser has -5 mW of power in total
The script is written in C and runs nightly
The script is written in C++ and runs nightly
The script is written in C# and runs nightly
Ana lends the blue bicycle to Ben every week
Ben lends the blue bicycle to Ana every week
The dog bit the man
The man bit the dog
The old dog bit the young man
The young man bit the old dog
Anna is loved by the big choir
Anna loves the big choir
Take the tram from the office to the station
Take the tram from the station to the office
The heating is on in the morning at home
The heating is off in the morning at home
The meeting is before lunch in the small room
The meeting is after lunch in the small room
I like tea
You like tea
I like the tea of the north very much 👍
I like the tea of the north very much 👎
The door is open
The door is not open
Der Brennofen wird jeden Freitag gereinigt
Der Brennofen wird nie am Freitag gereinigt
La llave del horno está en la nevera
La llave del horno no está en la nevera
本社は渋谷にあります
本社は渋谷にありません
The service node runs on port 80
The service Node runs on port 80
Version 1.2.10 is on staging
Version 1.21.0 is on staging
"""


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def once(texts: list[str]) -> list[tuple[str, int]]:
    kept = told_once(list(enumerate(texts)), said=lambda item: ("ana", item[1]), age=lambda item: item[0])
    return [(text, alike) for (_, text), alike in kept]


@pytest.mark.parametrize("texts", AGAIN.values(), ids=list(AGAIN))
def test_what_is_said_again_is_told_once(texts: str) -> None:
    """By its newest form, with how many others there were."""
    said = lines(texts)
    assert once(said) == [(said[-1], len(said) - 1)]


def test_what_differs_in_what_it_says_stays() -> None:
    """Numbers, names, negations, case, signs, who does what to whom, and every word that says more."""
    said = lines(APART)
    assert once(said) == [(text, 0) for text in said]


def test_other_facts_keep_their_places() -> None:
    """The newest stands where the first of the alike did."""
    said = [*lines(DEPLOY)[:2], "The window is Tuesday from 9 to 11", *lines(DEPLOY)[2:], "The oven is warm"]
    assert once(said) == [(lines(DEPLOY)[-1], 5), (said[2], 0), (said[-1], 0)]


def test_what_two_people_say_are_two_things() -> None:
    """Each may mean himself."""
    said = [("ana", "I like green tea a lot"), ("ben", "I like green tea a lot"), ("ana", "I like green tea a lot")]
    kept = told_once(list(enumerate(said)), said=lambda item: item[1], age=lambda item: item[0])
    assert [(item[1][0], alike) for item, alike in kept] == [("ana", 1), ("ben", 0)]


@pytest.mark.parametrize("text", ["", "...", "!", "👍", "again", "Reminder:", "x" * 5_000])
def test_any_text_is_told(text: str) -> None:
    """Also one without words, or of nothing but a frame; the same twice is the same."""
    assert once([text, text]) == [(text, 1)]


def test_pairs_are_judged_alike_in_both_directions() -> None:
    """Which came first does not matter."""
    for one, other in combinations(lines(APART), 2):
        assert len(once([other, one])) == 2, (one, other)
