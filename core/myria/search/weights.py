"""What each signal of the ranking counts: all its numbers, in percent unless they say otherwise.

A signal is here because it finds more of what was asked for on two unlike kinds of talk, or because something is
promised by it (days, hints, people, what is true now); docs/retrieval.md has the gain of each on every kind.
`python -m benchmarks.retrieval --without NAME` measures a ranking without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The weights of a ranking. A signal whose weight is 0 counts nothing."""

    saturation: int = 900
    """BM25's k1 in permille: how soon a repeated word counts no more."""
    length: int = 750
    """BM25's b in permille: how much a long text's words count less."""
    usual_length: int = 30
    """Terms of a text whose words count as they are. It is fixed: against a mean that long answers of assistants lift,
    they would bury what people say."""
    longest: int = 2_000
    """Terms that count as a text's length, at most."""
    aside: int = 40
    """A word that stands only in an event's topic hints, or in what describes its pictures, against one of its text."""
    related: int = 50
    """A word that stands in for one of the question, against that word itself."""
    members: int = 40
    """A word that names one of the kind of thing asked for: "my cat" answers "what pets"."""
    together: int = 150
    """What a text's own words gain if it holds all words of the question, by rarity; less as it holds fewer."""
    before: tuple[int, int] = (40, 20)
    """What the first and second text before lend of their own score."""
    after: tuple[int, int] = (30, 20)
    """What the first and second text after lend."""
    farther: tuple[int, int, int, int] = (20, 15, 10, 5)
    """What the third to the sixth lend in both directions where few words lie between: people type in bursts."""
    answers: tuple[int, int] = (45, 20)
    """What a question lends to the text after it, and the text before the question to that same text."""
    leaf: int = 30
    """The best match of each word within the leaf."""
    unit: int = 40
    """The same within the unit, a stretch of talk."""
    lending: int = 60
    """Terms of a text up to which it lends and borrows in full: a long one holds a word of nearly every question."""
    speaker: int = 100
    """What the score of a text gains that a named person said."""
    participant: int = 25
    """What it gains in scopes with a named participant, where others have none."""
    says_when: int = 50
    """What it gains if it says when, and the question asks when."""
    names: int = 30
    """What it gains if it names something, and the question asks which, where or who."""
    wish: int = 40
    """What it gains if it may be a standing wish ("always show an example"), and the question asks for help."""
    asking: tuple[int, int] = (500, 15)
    """In permille: what a text loses that ends in a question, and how much less for each of its terms. It holds fewer
    answers, unless it tells something first."""
    few_words: tuple[int, int] = (700, 100)
    """The same of any text: one of a word or two tells little, whatever stands around it."""
    period: int = 150
    """What a text gains within a month, a year or another period that the question names."""
    on_day: int = 500
    """What it gains on a day that the question names, and if it tells of that day."""
    told_on: int = 400
    """What it gains if it was told on that day and names others."""
    around_day: int = 300
    """What it gains around that day."""
    not_yet: int = 50
    """What a text loses that holds from a later day on, where the question asks for the present."""
    newer: int = 115
    """What a later statement that replaced the best hit is worth against it, where a question asks for the present."""
    also_newer: int = 95
    """The same where the question asks what changed: both are an answer, in order."""
    hint: int = 100
    """What a shared topic hint adds where both confidences are 1."""
    hint_term: int = 40
    """What a single word of a hint counts against a whole one."""
    hint_text: int = 25
    """What a hint's words in a text count against the question's own."""
    near: int = 25
    """What a standard deviation of nearness in meaning counts against all words of the question."""
    read: int = 200
    """Terms of a text up to which its nearness counts in full. A model reads about so many, and the beginning of a long
    text is alike to nearly every question about its subject."""


WEIGHTS: Final = Weights()
