"""The language of a text is that of its function words."""

from __future__ import annotations

import pytest

from myria.text import words_in
from myria.topics.wording import Votes, language_named, language_of

TEXTS = {
    "english": "The kiln is hot, and we should not open it before it cools.",
    "german": "Der Ofen ist heiß, und wir sollten ihn nicht öffnen, bevor er abkühlt.",
    "french": "Le four est chaud et nous ne devons pas l'ouvrir avant ce soir.",
    "spanish": "El horno está caliente y no lo vamos a abrir hasta mañana por la tarde.",
    "russian": "Печь ещё не остыла, и мы её не будем открывать до завтра.",
    "arabic": "الفرن لا يزال ساخنا و لن نفتحه قبل أن يبرد في المساء",
    "unknown": "kabe vobe rilo tesu gana mifu jelo",
}


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
def test_a_language_is_told_by_its_function_words(name: str, text: str) -> None:
    """Each text is in the language that it is written in; nothing is known of made-up words."""
    assert language_of(words_in(text)).name == name


def test_a_short_text_is_in_the_likely_language() -> None:
    """One function word of another language is no sign; several are."""
    votes = Votes()
    votes.extend(words_in("kiln die glaze").terms)
    assert votes.language(likely=language_named("english")).name == "english"
    votes.extend(words_in(TEXTS["german"]).terms)
    assert votes.language(likely=language_named("english")).name == "german"


def test_words_that_are_added_one_by_one_count_as_those_of_a_text() -> None:
    """Numbers are left out of both."""
    terms = words_in("The kiln reached 1300 degrees, and it is not cold").terms
    at_once, singly = Votes(), Votes()
    at_once.extend(terms)
    for term in terms:
        if not term.isdigit():
            singly.add(term, 1)
    assert at_once == singly
