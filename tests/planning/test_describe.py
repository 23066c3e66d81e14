"""Labels and summaries say what a person would want to know, within their bounds."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from myria.topics.calendar import end_of_day, group_text, moment_text, span_text
from myria.topics.model import LEAF, UNIT_LEVEL, Node, PlanEvent, level_name
from myria.topics.scope_plan import plan_scope, plan_unit
from myria.topics.texts import _weight
from tests.planning.generators import MINUTE, SETTINGS, key_of

SCOPE = ("ana", "bo", "user_42")
MAY_8 = 1_683_554_160_000_000
"""8 May 2023, 13:56 UTC."""

TALK = (
    ("Ana", "Hi Bo! How have you been?"),
    ("Bo", "Busy, but good. We finally fired the gas kiln on Saturday, and the celadon glaze came out perfect."),
    ("Ana", "Celadon in the gas kiln! Did the glaze craze?"),
    ("Bo", "Not at all. The gas kiln reached cone ten in nine hours."),
    ("Ana", "By the way, my visa interview at the Portuguese embassy is next Thursday."),
    ("Bo", "Did the Portuguese embassy ask for the visa papers in advance?"),
    ("Ana", "Yes, the embassy wants the visa forms and a New York bank statement."),
    ("Bo", "Good luck with the visa interview!"),
)


def talk(*lines: tuple[str | None, str], start: int = MAY_8, first_seq: int = 0, **fields: Any) -> list[PlanEvent]:
    """One event per line, half a minute apart."""
    return [
        PlanEvent(
            event_seq=first_seq + n,
            event_id=f"evt_{first_seq + n:04}",
            key=key_of(f"evt_{first_seq + n:04}"),
            timestamp=start + n * MINUTE // 2,
            text=text,
            speaker=who,
            **fields,
        )
        for n, (who, text) in enumerate(lines)
    ]


def leaves(nodes: list[Node]) -> list[Node]:
    """The leaves among some nodes, in order."""
    return [node for node in nodes if node.node_type == LEAF]


def phrases(node: Node) -> list[str]:
    """The phrases that a node keeps, the best first."""
    return [phrase for phrase, _ in node.metadata["phrases"]]


def test_leaves_are_named_by_one_subject() -> None:
    """A label is the one phrase that says most, as it was said, without names and small talk."""
    kiln, visa = leaves(plan_unit(SCOPE, talk(*TALK), SETTINGS))
    assert kiln.label == "Gas kiln"
    assert visa.label == "Visa interview"


def test_a_label_tells_a_leaf_from_its_neighbours() -> None:
    """What every leaf of a unit speaks of names none of them."""
    everywhere = [TALK[0], *((who, f"{line} That is for the harbour festival.") for who, line in TALK[1:])]
    events = talk(*everywhere[:4]) + talk(*everywhere[4:] * 2, start=MAY_8 + 20 * MINUTE, first_seq=10)
    *inside, unit = plan_unit(SCOPE, events, SETTINGS)
    assert unit.label == "Harbour festival"
    assert inside
    assert "Harbour festival" not in [leaf.label for leaf in inside]


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("Hi there, the app crashes when I open the calendar.", "The app crashes when I open the calendar"),
        ("Hello Bo! Where is my parcel?", "Where is my parcel?"),
        ("Guten Tag, die Waschmaschine zeigt den Fehlercode E18.", "Die Waschmaschine zeigt den Fehlercode E18"),
        ("Hola, la factura de marzo no llegó a mi correo.", "La factura de marzo no llegó a mi correo"),
        ("Bonjour, le colis est arrivé sans le chargeur.", "Le colis est arrivé sans le chargeur"),
        ("Здравствуйте! Посылка пришла без зарядного устройства.", "Посылка пришла без зарядного устройства"),
        ("注文した掃除機が届きません。", "注文した掃除機が届きません"),
        ("我的订单还没有到货。", "我的订单还没有到货"),
        ("لم تصل فاتورة مارس.", "لم تصل فاتورة مارس"),
    ],
)
def test_a_short_talk_is_called_by_the_line_that_opens_it(line: str, label: str) -> None:
    """What a customer writes first is the title of the case, without the greeting before it, in any language."""
    case = talk(("Ana", line), ("Bo", "Sorry about that!"), ("Ana", "Thanks."))
    assert plan_unit(SCOPE, case, SETTINGS)[-1].label == label


@pytest.mark.parametrize("header", ["Subject: ", "Betreff: ", "Re: ", "AW: Betreff: "])
def test_a_mail_is_called_by_its_subject(header: str) -> None:
    """The subject line is the title, without what stands before it in mails."""
    mail = f"{header}Cracked lid of the glass carafe\n\nDear team,\nthe carafe arrived broken.\n\nKind regards\nAna"
    case = plan_unit(SCOPE, talk(("Ana", mail), ("Bo", "Sorry about that!")), SETTINGS)[-1]
    assert case.label == "Cracked lid of the glass carafe"


def test_a_hint_that_all_cases_have_does_not_hide_what_each_is_about() -> None:
    """A first line that says much stands before the hint; one that says little behind it."""
    support: dict[str, Any] = {"hints": (("support", 900),)}
    told = talk(("Ana", "My invoice shows the wrong VAT number."), ("Bo", "Which one is right?"), **support)
    assert plan_unit(SCOPE, told, SETTINGS)[-1].label == "My invoice shows the wrong VAT number"
    vague = talk(("Ana", "I'm still awake, because I want to say it myself."), ("Bo", "Go on."), **support)
    assert plan_unit(SCOPE, vague, SETTINGS)[-1].label == "Support"


def test_a_newcomer_begins_a_case_of_their_own() -> None:
    """In a log where one case follows the other, each leaf is called by the line that opens it."""
    opened = (
        ("Ana", "My invoice shows the wrong VAT number."),
        ("Cy", "The webhook for payments returns 401."),
        ("Dee", "The carafe arrived with a cracked lid."),
        ("Cy", "My order 55 still hasn't shipped."),
    )
    cases = [
        ((who, line), ("Bo", "Let me see."), ("Bo", "It is solved now."), (who, "Thanks!")) for who, line in opened
    ]
    events = [
        event
        for at, case in enumerate(cases)
        for event in talk(*case, start=MAY_8 + at * 12 * MINUTE, first_seq=at * 10)
    ]
    labels = [leaf.label for leaf in leaves(plan_unit(("bo",), events, SETTINGS))]
    assert labels == [line.rstrip(".") for _, line in opened]


@pytest.mark.parametrize("line", ["Hi Bo! How have you been?", "Good morning!", "Thanks for yesterday, that was fun!"])
def test_small_talk_is_no_title(line: str) -> None:
    """A greeting, or a line that says nothing, names no talk: who talked and when does."""
    small = talk(("Ana", line), ("Bo", "Fine, thanks. And you?"), ("Ana", "Good, good."))
    assert plan_unit(SCOPE, small, SETTINGS)[-1].label == "Ana and Bo, 8 May 2023, 13:56"


def test_no_label_joins_strangers() -> None:
    """A label of a leaf or a unit is one thing, never several that an "and" joins."""
    lines = ("The kiln, the glaze and the wheel came.", "The wheel, the glaze and the kiln broke.", "And the clay!")
    events = talk(*((None, line) for line in lines * 5))
    for node in plan_unit(SCOPE, events, SETTINGS):
        assert " and " not in node.label
        assert "," not in node.label.partition(" 2023")[0]


def test_a_word_is_shown_as_it_was_written_first() -> None:
    """Of two words with one stem, the one that came first is the one that is shown."""
    (leaf,) = leaves(plan_unit(SCOPE, talk(("Bo", "gabo dogs leafids gabo dog gabo leafids")), SETTINGS))
    assert {keyword for keyword, _ in leaf.metadata["keywords"]} == {"gabo", "leafids", "dogs"}


def test_a_leaf_summary_gives_who_when_and_the_sentences_that_say_most() -> None:
    """Who talked when, then at most two of their own sentences, the newest first."""
    kiln, visa = leaves(plan_unit(SCOPE, talk(*TALK), SETTINGS))
    assert kiln.summary == (
        "Ana and Bo, 8 May 2023, 13:56–13:57 UTC. Bo: “The gas kiln reached cone ten in nine hours.” "
        "Bo: “We finally fired the gas kiln on Saturday, and the celadon glaze came out perfect.”"
    )
    assert "Ana: “Yes, the embassy wants the visa forms and a New York bank statement.”" in visa.summary
    assert "How have you been" not in kiln.summary


def test_a_summary_says_who_wrote_and_what_nobody_said() -> None:
    """Those who wrote are named, at most four of them; events without a speaker are counted."""
    alone = plan_unit(SCOPE, talk(("Rig", "The soak test ran."), ("Rig", "The soak test passed.")), SETTINGS)[-1]
    assert alone.summary.startswith("Rig, 8 May 2023, 13:56 UTC. Rig: “")
    nobody = plan_unit(SCOPE, talk((None, "The soak test ran."), (None, "The soak test passed.")), SETTINGS)[-1]
    assert nobody.summary.startswith("2 events, 8 May 2023, 13:56 UTC. “")
    many = talk(*((name, "The kiln is hot.") for name in ("Ana", "Bo", "Cy", "Dee", "Eve")))
    assert plan_unit(SCOPE, many, SETTINGS)[-1].summary.startswith("Ana, Bo, Cy, Dee and others, 8 May 2023")


def test_a_long_answer_says_less_than_what_was_asked() -> None:
    """Of a talk with an assistant, the title and the sentences are of what the user wrote."""
    answer = "\n".join(
        f"- **Step {n}**: Review the quarterly spreadsheet and document each stakeholder decision carefully."
        for n in range(40)
    )
    asked = (
        ("user", "My sourdough starter smells of acetone, what should I do with the sourdough starter?"),
        ("assistant", answer),
        ("user", "I fed the sourdough starter with rye flour this morning, and it doubled by noon."),
        ("assistant", answer),
    )
    leaf = plan_unit(("user_7",), talk(*asked), SETTINGS)[-1]
    assert "sourdough starter" in leaf.label.lower()
    assert "user: “I fed the sourdough starter" in leaf.summary


def test_metadata_counts_words_speakers_and_hints() -> None:
    """Metadata holds weighed keywords, who spoke how often, hints, span and counts."""
    events = talk(*TALK[:4], hints=(("pottery", 700), ("small_talk", 100)))
    metadata = plan_unit(SCOPE, events, SETTINGS)[-1].metadata
    assert metadata["speakers"] == [["Ana", 2], ["Bo", 2]]
    assert metadata["hints"] == [["pottery", 2800], ["small_talk", 400]]
    assert {"kiln", "glaze"} <= {word.lower() for word, _ in metadata["keywords"]}
    assert metadata["keywords"] == sorted(metadata["keywords"], key=lambda pair: (-pair[1], pair[0]))
    assert (metadata["events"], metadata["leaves"], metadata["units"]) == (4, 1, 1)
    assert (metadata["first_at"], metadata["last_at"]) == (MAY_8, MAY_8 + 90_000_000)


def test_a_unit_of_several_subjects_is_called_by_who_and_when() -> None:
    """What one leaf says alone names no unit; its summary quotes the best sentence of each, the newest first."""
    unit = plan_unit(SCOPE, talk(*TALK), SETTINGS)[-1]
    assert unit.level == UNIT_LEVEL
    assert unit.label == "Ana and Bo, 8 May 2023, 13:56"
    assert unit.summary == (
        "Ana and Bo, 8 May 2023, 13:56–13:59 UTC. "
        "Ana: “By the way, my visa interview at the Portuguese embassy is next Thursday.” "
        "Bo: “The gas kiln reached cone ten in nine hours.”"
    )


def test_a_list_of_cases_is_called_by_none_of_them() -> None:
    """Where each event is a case of its own, with its number, the first one and its words name no other."""
    cases = (
        "#4001 Mrs. Abel, AquaPure 200: the filter light keeps blinking.",
        "#4002 Ms. Berg, BrewMate 5: lukewarm coffee, thermostat replaced under warranty.",
        "#4003 Café Mistral, BrewMate 9: wants forty spare carafes.",
        "#4004 Mr. Conti, SteamJet 3: the sole plate leaks.",
    )
    leaf = plan_unit(("bo", "eva"), talk(*(("Bo", case) for case in cases)), SETTINGS)[-1]
    assert leaf.label == "Bo, 8 May 2023, 13:56"
    assert "“#4002 Ms. Berg" in leaf.summary


def test_what_is_said_in_passing_names_nothing() -> None:
    """A phrase of one event is what one sentence is about, not the talk."""
    lines = (
        ("Ana", "Good morning!"),
        ("Bo", "No yoghurt, no drying herbs, no hatching ducks."),
        ("Ana", "Nobody said anything else until now."),
        ("Bo", "I have written that up, with one name on each."),
    )
    assert plan_unit(SCOPE, talk(*lines), SETTINGS)[-1].label == "Ana and Bo, 8 May 2023, 13:56"


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ("She has a practical, no-nonsense attitude.", "nonsense attitude"),
        ("The new hire ramp-up time is short.", "hire ramp"),
        ("We read the Montserrat Employment Act again.", "Montserrat Employment"),
    ],
)
def test_a_phrase_is_not_cut_within_what_belongs_together(line: str, cut: str) -> None:
    """A hyphen, or capitals one after the other, join words: no phrase begins or ends between them."""
    assert cut not in phrases(plan_unit(SCOPE, talk((None, line), (None, line)), SETTINGS)[-1])


def test_a_summary_prefers_what_says_how_something_stands() -> None:
    """Memories and updates of tasks are written to say it; lines of lists and what leans on others say less."""
    said = [
        *talk(("Ana", "So the kiln club of the harbour quarter gets theirs later, sorry.")),
        *talk(
            ("Rig", "T-1 done: eleven of twelve kilns shipped on 20 February."),
            start=MAY_8 + MINUTE,
            first_seq=1,
            type="task_update",
        ),
        *talk(
            ("Bo", "- **Kiln logistics**: pack the kilns for the harbour quarter"),
            start=MAY_8 + 2 * MINUTE,
            first_seq=2,
        ),
    ]
    assert (
        "Rig: “T-1 done: eleven of twelve kilns shipped on 20 February.”"
        in plan_unit(SCOPE, said, SETTINGS)[-1].summary
    )


def test_a_weak_hint_is_better_than_none() -> None:
    """What an emitter says a part of a talk is about stands before who and when."""
    events = talk(*TALK[:1]) + talk(
        ("Bo", "Busy, but good."), first_seq=5, start=MAY_8 + MINUTE, hints=(("errands", 500),)
    )
    events += talk(("Ana", "Same here."), ("Bo", "Good."), ("Ana", "See you."), first_seq=7, start=MAY_8 + 2 * MINUTE)
    assert plan_unit(SCOPE, events, SETTINGS)[-1].label == "Errands"


def test_markers_and_hints_lead() -> None:
    """What a marker says is the label, else what the emitter hinted with confidence; a phrase where neither does."""
    marked = talk(("Ana", "Sprint 12: the kiln\u2028log"), type="topic_marker") + talk(
        *TALK[1:3], start=MAY_8 + MINUTE, first_seq=5, hints=(("glaze_tests", 900),)
    )
    unit = plan_unit(SCOPE, marked, SETTINGS)[-1]
    assert unit.label == "Sprint 12: the kiln log"
    assert "Sprint 12" not in unit.summary
    hinted = talk(*TALK[1:3], hints=(("glaze_tests", 900),))
    assert plan_unit(SCOPE, hinted, SETTINGS)[-1].label == "Glaze tests"
    unsure = talk(*TALK[1:3], hints=(("glaze_tests", 100),))
    assert not plan_unit(SCOPE, unsure, SETTINGS)[-1].label.startswith("Glaze tests")


def test_a_hint_that_all_leaves_have_names_the_unit() -> None:
    """It tells no leaf from the others, which are called by their own phrases."""
    *inside, unit = plan_unit(SCOPE, talk(*TALK, hints=(("errands", 900),)), SETTINGS)
    assert unit.label == "Errands"
    assert [leaf.label for leaf in inside] == ["Gas kiln", "Visa interview"]


def test_a_hint_of_several_leaves_stands_before_an_aside_that_opens_them() -> None:
    """What most events of a talk are hinted to be about names it better than the first line of its first leaf."""
    *_, unit = plan_unit(
        SCOPE, talk(("Ana", "The courier is forty minutes early."), *TALK[1:], hints=(("kiln_boxes", 900),)), SETTINGS
    )
    assert unit.level == UNIT_LEVEL
    assert unit.label == "Kiln boxes"


def test_a_summary_tells_what_the_label_names() -> None:
    """Of two sentences that say as much, the one that has a word of the label is quoted, and no word to the other."""
    lines = (
        ("Ana", "The gas kiln stands in the harbour quarter."),
        ("Bo", "Your violin sounds wonderful in the concert hall."),
        ("Ana", "The violin concert was in the concert hall."),
        ("Bo", "The gas kiln comes from the pottery museum."),
        ("Ana", "The gas kiln has a copper chimney."),
    )
    leaf = plan_unit(SCOPE, talk(*lines, hints=(("gas kiln", 900),)), SETTINGS)[-1]
    assert "“The gas kiln has a copper chimney.”" in leaf.summary
    assert "Your violin" not in leaf.summary


def test_a_hint_is_written_as_people_write_it() -> None:
    """A hint takes the letters of the same words in the text, and no other form of them."""
    lines = (
        ("Bo", "Good morning!"),
        ("Ana", "Is the EMC test booked in Bremen?"),
        ("Bo", "Yes, the EMC test is naming its price."),
    )
    test = talk(*lines, hints=(("emc_test", 900),))
    assert plan_unit(SCOPE, test, SETTINGS)[-1].label == "EMC test"
    name = talk(*lines, hints=(("names", 900),))
    assert plan_unit(SCOPE, name, SETTINGS)[-1].label == "Names"


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ("The watchdog resets the board.", "watchdog"),
        ("A replacement glass carafe ships today.", "glass carafe"),
        ("I refactor modules at night.", "modules"),
    ],
)
def test_a_phrase_is_a_whole_noun(line: str, phrase: str) -> None:
    """A verb does not belong to it."""
    assert phrase in phrases(plan_unit(SCOPE, talk((None, line), (None, line)), SETTINGS)[-1])


def test_phrases_go_on_across_small_words() -> None:
    """What a person would say in one breath is one phrase; a number's unit and an identifier are none."""
    events = talk(("Ana", "The school kitchen in Almada waits."), ("Bo", "TC-4: sensors sit 40 mm from the board."))
    said = phrases(plan_unit(SCOPE, events, SETTINGS)[-1])
    assert "school kitchen in Almada" in said
    assert not {"TC", "mm"}.intersection(said)


async def test_groups_carry_their_date() -> None:
    """A group is called by its calendar span and at most two subjects, and quotes what was said last in it."""
    day = 24 * 60 * MINUTE
    events = talk(*TALK[:4]) + talk(*TALK[4:], start=MAY_8 + 3 * day, first_seq=10)
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    assert root is not None
    top = nodes[-1]
    assert level_name(top.level) == "week"
    assert top.label == "8–11 May 2023: gas kiln, visa interview"
    assert top.summary == (
        "Ana and Bo: 2 conversations, from 8 to 11 May 2023. "
        "On 11 May 2023: Ana: “Yes, the embassy wants the visa forms and a New York bank statement.” "
        "On 8 May 2023: Bo: “The gas kiln reached cone ten in nine hours.”"
    )
    _, later = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 20 * day, first_seq=20)], SETTINGS)
    assert later[-1].label.startswith("May 2023: ")
    _, years = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 900 * day, first_seq=20)], SETTINGS)
    assert years[-1].label.startswith("2023–2025: ")
    _, months = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 200 * day, first_seq=20)], SETTINGS)
    assert ", from 8 May to 24 November 2023. " in months[-1].summary
    for node in (top, later[-1], years[-1], months[-1]):
        assert node.label.count(",") == 1


@pytest.mark.parametrize(
    ("label", "day"),
    [
        *(
            (text, text)
            for name in ("day", "part of day", "hour", "minute")
            for text in [group_text(name, MAY_8, MAY_8)]
        ),
        *((f"{text}: kiln, 9 May 2023", text) for text in [group_text("week", MAY_8, MAY_8 + 3 * 86_400_000_000)]),
        *((text, text) for days in (30, 300) for text in [span_text(MAY_8, MAY_8 + days * 86_400_000_000)]),
        *((f"Ana, {text}", f"Ana, {text}") for text in [moment_text(MAY_8)]),
        *(
            (text, "")
            for text in ("May 2023: kiln", "2023–2025", "The kiln on 8 May 2023", "8 May", "Lisbon, 8 May 2023")
        ),
    ],
)
def test_a_day_is_found_in_a_label(label: str, day: str) -> None:
    """Where code has written one, so that a page may say in which zone it is; people's own words stay as they are."""
    assert label[: end_of_day(label)] == day


def test_events_without_words_are_called_by_kind_and_time() -> None:
    """Where nobody says anything, the label is what happened and when."""
    for kind, label in (("door_opened", "Door opened"), ("myria.note", "Note")):
        silent = plan_unit(SCOPE, talk((None, ""), (None, ""), type=kind), SETTINGS)[-1]
        assert silent.label == f"{label}, 8 May 2023, 13:56"


@pytest.mark.parametrize(
    ("lines", "phrase"),
    [
        (("Der Brennofen ist kaputt.", "Wer repariert den Brennofen?"), "Brennofen"),
        (("Mañana tengo la entrevista.", "¿Y los papeles para la embajada de Portugal?"), "embajada de Portugal"),
        (("On a réservé l'appartement.", "Et le contrat de location, il est signé ?"), "contrat de location"),
        (("Купили билеты на поезд.", "Билеты на поезд уже есть."), "билеты на поезд"),
        (("حجزت تذاكر الطيران أمس.", "أين تذاكر الطيران؟"), "تذاكر الطيران"),
        (("来週は京都です。", "会議の資料を送ります。"), "会議の資料"),
        (("データベースの移行は金曜日に終わりました。", "猫が好きですか？"), "データベースの移行"),
        (("我们下周在上海开会讨论预算。", "预算表已经发给财务部了吗？"), "上海开会讨论预算"),
        (("회의 자료는 준비됐어요?", "회의 자료를 보내 드릴게요."), "회의 자료"),
        (("การประชุมครั้งต่อไปที่กรุงเทพ", "ได้ค่ะ"), "การประชุม"),
        (("Harry Potter is on tonight.", "Kiln or Harry Potter?"), "Harry Potter"),
    ],
)
def test_phrases_of_other_languages_are_whole(lines: tuple[str, ...], phrase: str) -> None:
    """A phrase is made of whole words of its language, also where nothing parts them."""
    said = phrases(plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1])
    assert phrase.lower() in [found.lower() for found in said], said


def test_what_a_leaf_says_is_untouched_by_other_leaves() -> None:
    """Leaves may share what is known of a word: one that has it often, or in capitals, changes nothing for others."""
    once = talk((None, "kabe vobe rilo"), (None, "tesu gana mifu jelo"))
    first = plan_unit(SCOPE, once, SETTINGS)[-1]
    for line in ("tebe rilo gana rilo mifu", "tebe vobe Vobe jelo Jelo", "tebe GANA rilo Mifu kabe"):
        plan_unit(SCOPE, talk((None, line), (None, line)), SETTINGS)
        assert plan_unit(SCOPE, once, SETTINGS)[-1] == first


def test_a_word_is_read_in_the_language_of_its_text() -> None:
    """What is kept of a word that was met in one language tells nothing in another one, whichever came first."""
    lines = (
        "wir haben die glasur und das werk, und das schimmern ist nicht so gut wie der ofen",
        "we have the glasur and the werk, and schimmern is not as good as the ofen",
        "glasur werk schimmern ofen",
        "tenemos la glasur y el werk, y schimmern no es como el ofen",
    )
    told = set()
    for order in permutations(lines):
        _weight.cache_clear()
        nodes = {line: plan_unit(SCOPE, talk((None, line), (None, line)), SETTINGS)[-1] for line in order}
        told.add(tuple(nodes[line].rendering_id for line in lines))
    assert len(told) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("おはようございます", "そうですね、ありがとう"),
        ("你好吗？", "我很好，你呢？"),
        ("สวัสดีค่ะ", "ได้ครับ"),
        ("안녕하세요?", "네, 좋아요!"),
        ("猫", "犬"),
        ("Hallo!", "Guten Morgen, danke!"),
    ],
)
def test_talk_without_nouns_is_called_by_who_and_when(lines: tuple[str, ...]) -> None:
    """Where no word stands out, a label is who and when, never particles or single characters."""
    assert plan_unit(SCOPE, talk(*(("Ana", line) for line in lines)), SETTINGS)[-1].label == "Ana, 8 May 2023, 13:56"


def test_identifiers_do_not_take_words_away() -> None:
    """The participant user_42 does not make "user" a name."""
    events = talk((None, "The user interface hides the user menu."), (None, "Every user misses the menu."))
    assert "user" in " ".join(phrases(plan_unit(SCOPE, events, SETTINGS)[-1]))


@pytest.mark.parametrize(
    ("lines", "wanted", "unwanted"),
    [
        # Greetings, thanks and farewells, in whatever language they are said.
        (
            ("Good morning! The soak is scheduled for tonight.", "danke, passt", "Thanks Mel, see you tomorrow!"),
            ("soak",),
            ("danke", "morning", "mel", "scheduled", "tomorrow"),
        ),
        (
            ("Guten Morgen! Der Vertrag liegt beim Notar.", "Vielen Dank, schönes Wochenende! LG"),
            ("vertrag", "notar"),
            ("morgen", "dank", "wochenende", "lg"),
        ),
        (
            ("Buenas noches, ¿has visto la factura del dentista?", "Sí, muchas gracias. Un abrazo, hasta mañana."),
            ("factura del dentista",),
            ("noches", "gracias", "abrazo", "visto"),
        ),
        (
            ("Bonsoir ! Le plombier remplace la chaudière.", "D'accord, merci beaucoup, bonne nuit."),
            ("chaudière",),
            ("accord", "merci", "nuit", "remplace"),
        ),
        (
            ("Bom dia! A renda do apartamento subiu.", "Obrigado, um abraço. Boa noite, até amanhã!"),
            ("renda do apartamento",),
            ("dia", "obrigado", "abraço", "noite"),
        ),
        (
            ("Привет! Я купила билеты на поезд в Казань.", "Спасибо большое, до завтра, спокойной ночи"),
            ("поезд", "билеты"),
            ("привет", "спасибо", "ночи", "купила"),
        ),
        (
            ("おはようございます。健康診断の結果が届きました。", "了解です、お疲れ様でした。よろしくお願いします。"),
            ("健康診断",),
            ("了解", "疲", "願", "です"),
        ),
        (
            ("早上好！芯片公司的录用通知来了。", "太好了，恭喜恭喜！谢谢，晚安。"),
            ("芯片公司的录用通知",),
            ("早上好", "恭喜", "谢谢", "晚安"),
        ),
        (
            ("안녕하세요! 동물병원에 전화할게요.", "네, 감사합니다 ㅋㅋㅋ 동물병원은 역 앞에 있어요."),
            ("동물병원",),
            ("안녕", "감사", "ㅋ", "있어"),
        ),
        (
            ("السلام عليكم، حجزت تذاكر الطيران إلى القاهرة.", "شكرا جزيلا، إن شاء الله، مع السلامة"),
            ("تذاكر الطيران",),
            ("السلام", "شكرا", "الله", "حجزت"),
        ),
        (
            ("नमस्ते, रसोई की मरम्मत अगले हफ्ते शुरू होगी।", "ठीक है, धन्यवाद। शुभ रात्रि"),
            ("रसोई की मरम्मत",),
            ("नमस्ते", "धन्यवाद", "रात्रि", "ठीक"),
        ),
        (
            (
                "Merhaba, bu damlama sulama sistemi yine bozuldu ama çok yeni.",
                "Sulama sistemi mi? Tamam, teşekkür ederim. Hoşça kal!",
            ),
            ("sulama sistemi",),
            ("merhaba", "teşekkür", "kal", "bozuldu"),
        ),
        # Fillers, judgements, verbs and adverbs.
        (
            (
                "yeah okay lol, the caterer wants a deposit",
                "Unsurprisingly. I hiked and relaxed, it was so breathtaking",
            ),
            ("deposit",),
            ("yeah", "okay", "lol", "unsurprisingly", "hiked", "breathtaking"),
        ),
        # Verbs within a run of words, and halves of phrases.
        (
            ("The payment gateway refuses connections.", "The invoice for the roof repair is late."),
            ("payment gateway", "roof repair"),
            ("refuses", "late"),
        ),
        (
            ("The account screen freed 31 kilobytes of flash.", "It is the highest amidst chaos, with the boot logo."),
            ("account screen",),
            ("freed", "highest", "amidst"),
        ),
        # Tags, addresses, identifiers and code.
        (
            (
                "A secondhand grinder from the market! #coffee #mondaymood",
                "https://example.com/watch?v=dQw4 via @lamarzocco",
            ),
            ("grinder",),
            ("mondaymood", "example", "lamarzocco", "http"),
        ),
        (
            (
                "tag v0.7.3 b91f0d2: artefact alcove-fw-0.7.3.bin",
                "The watchdog resets the board.",
                "static void tick(void);",
            ),
            ("watchdog",),
            ("alcove", "artefact alcove", "static", "void", "b91f0d2"),
        ),
        (
            (
                "2026-03-01T08:12:44Z ERROR checkout-7f9c6d5b8-x2x9q upstream reset",
                "The certificate of the gateway expired.",
                '{"order_id": "a8f5f167f44f4964e6c998dee827110c", "carrier": "the post office"}',
            ),
            ("certificate",),
            ("error", "order_id", "a8f5f167", "x2x9q", "expired"),
        ),
        # Letters: salutation, signature, quoted lines.
        (
            (
                "Dear Mr. Thompson,\nthe lease of the warehouse is signed.\n\nKind regards,\nJane Miller\nThe Manager",
                "> Dear Mr. Thompson,\n> I wait for the lease.\nThe insurance certificate is missing.",
            ),
            ("lease of the warehouse",),
            ("thompson", "regards", "miller", "manager"),
        ),
        # Shouting.
        (("WHERE IS THE INVOICE FOR THE CARPET", "OK THANKS"), ("invoice for the carpet",), ("INVOICE", "thanks")),
    ],
)
def test_what_is_no_subject_stands_in_no_phrase(
    lines: tuple[str, ...], wanted: tuple[str, ...], unwanted: tuple[str, ...]
) -> None:
    """A phrase names what the talk is about, and nothing that people say or paste whatever it is about."""
    said = phrases(plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1])
    folded = [phrase.lower() for phrase in said]
    assert all(any(phrase in found for found in folded) for phrase in wanted), said
    spoken = said if any(word.isupper() for word in unwanted) else folded
    assert not any(word in phrase.split() for word in unwanted for phrase in spoken), said


def test_languages_that_people_mix_are_each_read_as_their_own() -> None:
    """A German mail in an English talk gives no German function words."""
    lines = (
        "Did the supplier write?",
        "Yes: „Wir liefern die Heizfolie mit zwei Sicherungen ab Werk, und die Lieferzeit beträgt fünf Wochen.“",
        "Five weeks of lead time for the foil, then.",
    )
    said = phrases(plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1])
    assert not {"mit", "ab", "und", "die", "wir", "zwei"} & set(" ".join(said).lower().split()), said


def test_initials_of_a_hint_are_capitals_and_identifiers_lead_nothing() -> None:
    """The hint `ci` is written CI; a hint that is an id or a number is not shown."""
    lines = (
        ("Jo", "Good morning!"),
        ("Rig", "The nightly build of the firmware passed."),
        ("Jo", "The firmware fits into the flash."),
    )
    assert plan_unit(SCOPE, talk(*lines, hints=(("ci", 900),)), SETTINGS)[-1].label == "CI"
    for hint in ("4711", "a8f5f167f44f4964", "#17", "T-17"):
        label = plan_unit(SCOPE, talk(*lines, hints=((hint, 900),)), SETTINGS)[-1].label
        assert hint.lower().strip("#") not in label.lower(), label


async def test_the_summary_of_many_talks_tells_the_newest_two() -> None:
    """A group quotes two of what lies beneath, each with its day, also from below another group, within its bounds."""
    day = 24 * 60 * MINUTE
    events = [
        event
        for n in range(20)
        for event in talk(
            ("Ana", f"The restoration of the observatory and of staircase {n} begins."),
            ("Bo", "Wonderful news!"),
            start=MAY_8 + n % 4 * 30 * day + n * day,
            first_seq=n * 10,
        )
    ]
    _, nodes = await plan_scope(SCOPE, sorted(events, key=lambda event: event.position), SETTINGS)
    groups = [node for node in nodes if level_name(node.level) not in ("leaf", "unit", "part")]
    assert len(groups) > 1
    for node in groups:
        assert len(node.summary) <= 600
        assert node.summary.count("On ") <= 2
    assert (
        "On 25 August 2023: Ana: “The restoration of the observatory and of staircase 19 begins.”" in groups[-1].summary
    )
