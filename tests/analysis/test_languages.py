"""Which language a text is in, and the stems of its words there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.index import Corpus, Doc, LooseBlock
from myria.search.question import Question
from myria.search.ranking import rank
from myria.text import terms, words_in
from myria.text.languages import languages_of, stems


def stems_in(text: str) -> set[str]:
    return set(stems(words_in(text), languages_of(text, terms(text))))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("german", "Ich wohne seit März in einer kleinen Wohnung am Hafen."),
        ("french", "Nous avons adopté deux petits chiens au refuge."),
        ("spanish", "¿Dónde viven los vecinos de Lucía?"),
        ("portuguese", "Não sei onde estão as chaves da casa."),
        ("italian", "Suono il violino il giovedì in un'orchestra."),
        ("dutch", "Wij hebben een huis aan het water."),
        ("polish", "Gdzie są klucze od mojego mieszkania?"),
        ("turkish", "Kız kardeşim eylülde bir çiftlikte evleniyor."),
        ("russian", "Моя сестра выходит замуж на ферме."),
        ("greek", "Πού είναι τα κλειδιά του σπιτιού;"),
    ],
)
def test_a_language_is_known_by_its_function_words_and_letters(language: str, text: str) -> None:
    """No more than the text itself is needed."""
    assert languages_of(text, terms(text)) == (language,)


@pytest.mark.parametrize(
    "text",
    ["", "👍", "Where does Anna live?", "The café is in Berlin.", "kubectl get pods -n prod", "京都へ行きます", "你好"],
)
def test_english_and_texts_without_words_of_a_language_have_no_other_stems(text: str) -> None:
    """So nothing about them changes, and their blocks do not grow."""
    assert stems_in(text) == set()


def test_two_forms_of_a_word_have_one_stem() -> None:
    """However they are inflected, elided or joined, and with accents or without where both are written."""
    assert stems_in("Die Häuser sind alt.") & stems_in("Ein Haus mit einem Garten.") == {"german:haus"}
    assert "french:orchestr" in stems_in("Je joue dans l'orchestre.") & stems_in("Dans quels orchestres joue-t-elle ?")
    assert "turkish:barınak" in stems_in("Kediyi barınaktan aldık.") & stems_in("Barınakta hangi kedi var?")


def test_a_text_that_may_be_in_two_languages_counts_as_each() -> None:
    """None is guessed at."""
    text = "la casa de la plaza"
    assert {"spanish", "french"} <= set(languages_of(text, terms(text)))


@given(st.text(max_size=200))
def test_any_text_has_stems_without_an_error(text: str) -> None:
    """Every stem is marked with its language, and the same text gives the same ones again."""
    found = stems(words_in(text), languages_of(text, terms(text)))
    assert all(stem.partition(":")[1] == ":" for stem in found)
    assert found == stems(words_in(text), languages_of(text, terms(text)))


RUSSIAN = (
    "Встретился с Иваном в парке.",
    "Никите подарили велосипед.",
    "Татьяной довольны все.",
    "С Павлом обсудили отпуск.",
    "Андрея повысили.",
    "Книга лежит у Льва.",
    "Олег уехал в Казань.",
    "Ольга любит чай.",
    "Фильм про Достоевского понравился Семёну.",
)


@pytest.mark.parametrize(
    ("question", "at"),
    [
        ("Где был Иван?", 0),
        ("Что подарили Никита?", 1),
        ("что с никитой?", 1),
        ("Татьяна", 2),
        ("Павел", 3),
        ("Что с Андреем?", 4),
        ("Кто такой Лев?", 5),
        ("Что ты знаешь об Олеге?", 6),
        ("Расскажи об Ольге", 7),
        ("Семен", 8),
        ("Достоевский", 8),
    ],
)
def test_a_russian_name_is_found_in_its_other_cases(question: str, at: int) -> None:
    """Also those whose vowel falls out, and those that look like other words; Oleg is not Olga."""
    docs = [
        Doc.of_payload({"text": text}, event_seq=seq, timestamp=seq * 60_000_000, channel="notes", type="myria.note")
        for seq, text in enumerate(RUSSIAN, 1)
    ]
    corpus = Corpus(participants=("me",), tail=LooseBlock().extended(docs))
    assert [hit.event_seq - 1 for hit in rank(Question(text=question), corpus).hits] == [at]
