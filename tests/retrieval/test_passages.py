"""The passage of a long text that is shown: most of what is asked for, wherever it stands, in any script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.text.model_tokens import byte_counter, token_counter
from myria.text.passages import best_span, passage, passage_within, sought_in

ENGLISH = "".join(f"Paragraph {at} talks about vessel {at * 7} and clay body {at % 13}. " for at in range(80))
GERMAN = "".join(f"Abschnitt {at} handelt von Gefäß {at * 7} und Tonmasse {at % 13}. " for at in range(80))
JAPANESE = "".join(f"第{at}段落では器と粘土について述べます。" for at in range(120))
THAI = "เรื่องของดินและภาชนะในสตูดิโอ" * 60
MARKED = "é" * 50 + "👩‍👩‍👧‍👦" * 100

LONG = [
    (ENGLISH, "The blue glaze is made with cobalt carbonate.", "What is the blue glaze made with?", "cobalt"),
    (ENGLISH, "The kiln was bought from Hans in 2019.", "Who sold us the kiln?", "Hans"),
    (GERMAN, "Die blauen Glasuren enthalten Kobalt.", "Was enthält die blaue Glasur?", "Kobalt"),
    (JAPANESE, "青い釉薬は炭酸コバルトで作ります。", "青い釉薬は何で作りますか", "コバルト"),
    (ENGLISH * 8, "Синяя глазурь делается из кобальта.", "Из чего делается синяя глазурь?", "кобальта"),
    (THAI, " เคลือบสีน้ำเงินทำจากโคบอลต์ ", "เคลือบสีน้ำเงินทำจากอะไร", "โคบอลต์"),
]


@pytest.mark.parametrize("where", ["end", "middle", "beginning"])
@pytest.mark.parametrize(("around", "answer", "question", "word"), LONG, ids=[case[3] for case in LONG])
def test_the_answer_is_shown_wherever_it_stands(around: str, answer: str, question: str, word: str, where: str) -> None:
    """Of a text many times as long as what is shown, in characters and in tokens alike."""
    middle = len(around) // 2
    text = {
        "end": f"{around}{answer}",
        "middle": f"{around[:middle]} {answer} {around[middle:]}",
        "beginning": f"{answer} {around}",
    }[where]
    sought = sought_in(question)
    shown = passage(text, sought, 240)
    assert word in shown
    assert len(shown) <= 240
    for counter, limit in ((token_counter(), 90), (byte_counter(), 260)):
        shown = passage_within(text, sought, counter, limit)
        assert word in shown
        assert counter.count(shown) <= limit


def test_most_words_count_and_not_the_first() -> None:
    """One word of the question at the head does not keep the passage there."""
    text = f"The blue van is outside. {ENGLISH} The blue glaze is made with cobalt carbonate."
    assert "cobalt" in passage(text, sought_in("What is the blue glaze made with?"), 240)


def test_a_rare_word_counts_more_than_one_that_is_everywhere() -> None:
    """Where as many words stand together, the rarer ones decide."""
    text = f"{ENGLISH} It is vessel cobalt. {ENGLISH}"
    assert "cobalt" in passage(text, sought_in("vessel cobalt clay"), 120)


def test_without_a_question_it_is_the_beginning() -> None:
    """A text that fits is shown whole; of another an ellipsis says that it goes on."""
    assert passage(ENGLISH, frozenset(), 60) == "Paragraph 0 talks about vessel 0 and clay body 0.…"
    assert passage("short", sought_in("x"), 60) == "short"
    assert passage_within("short", sought_in("x"), byte_counter(), 60) == "short"


@given(st.text() | st.text(st.sampled_from("ab .é́👩‍👧中。\n")), st.text(max_size=8), st.integers(1, 40))
def test_a_passage_is_part_of_its_text(text: str, question: str, characters: int) -> None:
    """Whatever it is made of: within its bounds, in characters and in tokens."""
    sought = sought_in(question)
    start, end = best_span(text, sought, characters)
    assert 0 <= start <= end <= len(text)
    assert end - start <= characters
    assert len(passage(text, sought, max(characters, 4))) <= max(characters, 4)
    assert byte_counter().count(passage_within(text, sought, byte_counter(), characters)) <= characters


def test_no_character_is_cut_from_its_marks() -> None:
    """Accents and joined emoji stay whole at both ends."""
    shown = passage(MARKED + " cobalt " + MARKED, sought_in("cobalt"), 60)
    assert "cobalt" in shown
    assert not shown.removesuffix("…").endswith("\u200d")
    assert not shown.removeprefix("… ").startswith(("\u200d", "\u0301"))
