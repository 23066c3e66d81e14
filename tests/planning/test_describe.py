"""Labels and summaries say what a person would want to know, within their bounds."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from myria.analysis.tokens import _FORMS
from myria.planning.model import LEAF, UNIT_LEVEL, Node, PlanEvent, level_name
from myria.planning.scope import plan_scope, plan_unit
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


def test_leaves_are_named_by_their_subjects() -> None:
    """Labels are titles of the phrases that say most, as they were said, without names and small talk."""
    kiln, visa = leaves(plan_unit(SCOPE, talk(*TALK), SETTINGS))
    assert kiln.label == "Gas kiln and celadon glaze"
    assert visa.label == "Portuguese embassy and visa interview"


def test_a_word_is_shown_as_it_was_written_first() -> None:
    """Of two words with one stem, the one that came first is the one that is shown."""
    (leaf,) = leaves(plan_unit(SCOPE, talk(("Bo", "gabo dogs leafids gabo dog gabo leafids")), SETTINGS))
    assert [keyword for keyword, _ in leaf.metadata["keywords"]] == ["gabo", "leafids", "dogs"]


def test_a_leaf_summary_gives_time_speakers_and_central_sentences() -> None:
    """Who talked when about what, and the sentences that say most, with who said them."""
    kiln, visa = leaves(plan_unit(SCOPE, talk(*TALK), SETTINGS))
    assert kiln.summary == (
        "Ana and Bo talked on 8 May 2023, 13:56–13:57 UTC, about gas kiln and celadon glaze. "
        "Bo: “We finally fired the gas kiln on Saturday, and the celadon glaze came out perfect.”"
    )
    assert "Ana: “Yes, the embassy wants the visa forms and a New York bank statement.”" in visa.summary
    assert "How have you been" not in kiln.summary


def test_a_summary_says_who_wrote_alone_and_what_nobody_said() -> None:
    """One speaker wrote, several talked; events without a speaker are counted."""
    alone = plan_unit(SCOPE, talk(("Rig", "The soak test ran."), ("Rig", "The soak test passed.")), SETTINGS)[-1]
    assert alone.summary.startswith("Rig wrote on 8 May 2023, 13:56 UTC, about soak test")
    nobody = plan_unit(SCOPE, talk((None, "The soak test ran."), (None, "The soak test passed.")), SETTINGS)[-1]
    assert nobody.summary.startswith("2 events on 8 May 2023, 13:56 UTC, about soak test")
    many = talk(*((name, "The kiln is hot.") for name in ("Ana", "Bo", "Cy", "Dee", "Eve")))
    assert plan_unit(SCOPE, many, SETTINGS)[-1].summary.startswith("Ana, Bo, Cy, Dee and others talked on ")


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


def test_a_unit_tells_its_leaves_and_one_sentence() -> None:
    """A unit's label and summary are made of what its leaves are about."""
    unit = plan_unit(SCOPE, talk(*TALK), SETTINGS)[-1]
    assert unit.level == UNIT_LEVEL
    assert unit.label == "Gas kiln and Portuguese embassy"
    assert "about Gas kiln and celadon glaze; Portuguese embassy and visa interview. " in unit.summary
    assert "“" in unit.summary


def test_markers_and_hints_lead() -> None:
    """What a marker says is the label; what the emitter hinted with confidence stands before the phrases."""
    marked = talk(("Ana", "Sprint 12: the kiln\u2028log"), type="topic_marker") + talk(
        *TALK[1:3], start=MAY_8 + MINUTE, first_seq=5, hints=(("glaze_tests", 900),)
    )
    unit = plan_unit(SCOPE, marked, SETTINGS)[-1]
    assert unit.label == "Sprint 12: the kiln log"
    assert ", about “Sprint 12: the kiln log”. " in unit.summary
    hinted = talk(*TALK[1:3], hints=(("glaze_tests", 900),))
    assert plan_unit(SCOPE, hinted, SETTINGS)[-1].label == "Glaze tests: gas kiln"
    unsure = talk(*TALK[1:3], hints=(("glaze_tests", 100),))
    assert not plan_unit(SCOPE, unsure, SETTINGS)[-1].label.startswith("Glaze tests")


def test_a_hint_is_written_as_people_write_it() -> None:
    """A hint takes the letters of the same words in the text, and no other form of them."""
    lines = (("Ana", "Is the EMC test booked in Bremen?"), ("Bo", "Yes, the EMC test is naming its price."))
    test = talk(*lines, hints=(("emc_test", 900),))
    assert plan_unit(SCOPE, test, SETTINGS)[-1].label.startswith("EMC test: ")
    name = talk(*lines, hints=(("names", 900),))
    assert plan_unit(SCOPE, name, SETTINGS)[-1].label.startswith("Names: ")


def test_phrases_go_on_across_small_words() -> None:
    """What a person would say in one breath is one phrase; a number's unit and an identifier are none."""
    events = talk(("Ana", "The school kitchen in Almada waits."), ("Bo", "TC-4: sensors sit 40 mm from the board."))
    label = plan_unit(SCOPE, events, SETTINGS)[-1].label
    assert label.startswith("School kitchen in Almada and ")
    assert not {"TC", "mm"} & set(label.split())


async def test_groups_carry_their_date() -> None:
    """A group is called by its calendar span and its subjects, and lists what lies beneath by date."""
    day = 24 * 60 * MINUTE
    events = talk(*TALK[:4]) + talk(*TALK[4:], start=MAY_8 + 3 * day, first_seq=10)
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    assert root is not None
    top = nodes[-1]
    assert level_name(top.level) == "week"
    assert top.label == "8–11 May 2023: gas kiln and Portuguese embassy"
    assert top.summary == (
        "Ana and Bo had 2 conversations, 8 events, from 8 to 11 May 2023: "
        "Gas kiln and celadon glaze (8 May); Portuguese embassy and visa interview (11 May)."
    )
    _, later = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 20 * day, first_seq=20)], SETTINGS)
    assert later[-1].label.startswith("May 2023: ")
    _, years = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 900 * day, first_seq=20)], SETTINGS)
    assert years[-1].label.startswith("2023–2025: ")
    _, months = await plan_scope(SCOPE, [*events, *talk(*TALK, start=MAY_8 + 200 * day, first_seq=20)], SETTINGS)
    assert ", from 8 May to 24 November 2023: " in months[-1].summary


def test_talk_without_words_of_its_own_is_quoted() -> None:
    """Small talk is labelled by what was said, and events without text by their type and date."""
    small = plan_unit(SCOPE, talk(("Ana", "Thanks!"), ("Bo", "Take care, see you soon!")), SETTINGS)[-1]
    assert small.label.startswith("“")
    silent = plan_unit(SCOPE, talk((None, ""), (None, ""), type="door_opened"), SETTINGS)[-1]
    assert silent.label == "Door opened on 8 May 2023"


@pytest.mark.parametrize(
    ("lines", "label"),
    [
        (
            ("Der Brennofen ist kaputt.", "Den Brennofen repariert Harry Potter, und die Glasur kommt aus Hamburg."),
            "Brennofen und Harry Potter",
        ),
        (
            ("Mañana tengo la entrevista para la visa.", "¿Y los papeles para la embajada de Portugal?"),
            "Embajada de Portugal y entrevista para la visa",
        ),
        (
            ("On a réservé l'appartement à Lyon.", "Et le contrat de location, il est signé ?"),
            "Appartement à Lyon et contrat de location",
        ),
        (("来週の会議は京都です。", "会議の資料を送ります。"), "会議の資料、京都"),
        (("データベースの移行は金曜日に終わりました。", "猫が好きですか？"), "データベースの移行"),
        (("我们下周在上海开会讨论预算。", "预算表已经发给财务部了吗？"), "上海开会讨论预算、财务部"),
        (("การประชุมครั้งต่อไปที่กรุงเทพ", "ได้ค่ะ"), "การประชุม, กรุงเทพ"),
        (("다음 주 회의는 부산에서 합니다.", "회의 자료를 보내 드릴게요."), "회의 자료, 부산"),
        (("Harry Potter is on tonight.", "Kiln or Harry Potter?"), "Harry Potter"),
    ],
)
def test_other_languages_are_labelled(lines: tuple[str, ...], label: str) -> None:
    """A label is made of whole words of its language, without function words, also where nothing parts them."""
    assert plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1].label == label


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
        _FORMS.clear()
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
    ],
)
def test_talk_without_nouns_is_quoted_in_any_script(lines: tuple[str, ...]) -> None:
    """Where no word stands out, a label is what somebody said, never particles or single characters."""
    label = plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1].label
    assert label.strip("“”") in lines or len(label) >= 4


def test_identifiers_do_not_take_words_away() -> None:
    """The participant user_42 does not make "user" a name."""
    events = talk((None, "The user interface hides the user menu."), (None, "Every user misses the menu."))
    assert "user" in plan_unit(SCOPE, events, SETTINGS)[-1].label.lower()


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
            ("Merhaba, bu damlama sulama sistemi yine bozuldu ama çok yeni.", "Tamam, teşekkür ederim. Hoşça kal!"),
            ("damlama sulama sistemi",),
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
def test_what_is_no_subject_stands_in_no_label(
    lines: tuple[str, ...], wanted: tuple[str, ...], unwanted: tuple[str, ...]
) -> None:
    """A label names what the talk is about, and nothing that people say or paste whatever it is about."""
    label = plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1].label
    assert all(phrase in label.lower() for phrase in wanted), label
    folded = label if any(word.isupper() for word in unwanted) else label.lower()
    assert not any(word in folded.replace(",", " ").split() or f"“{word}" in folded for word in unwanted), label


def test_a_label_is_no_list_of_keywords() -> None:
    """A leaf's or a unit's label has at most two subjects; the summary may name a third."""
    lines = ("The kiln, the glaze and the wheel came.", "The wheel, the glaze and the kiln broke.", "And the clay!")
    leaf = plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1]
    assert leaf.label.count(",") == 0
    assert leaf.label.count(" and ") == 1
    assert leaf.summary.split("about ")[1].split(".")[0].count(",") == 1


def test_languages_that_people_mix_are_each_read_as_their_own() -> None:
    """A German mail in an English talk gives no German function words."""
    lines = (
        "Did the supplier write?",
        "Yes: „Wir liefern die Heizfolie mit zwei Sicherungen ab Werk, und die Lieferzeit beträgt fünf Wochen.“",
        "Five weeks of lead time for the foil, then.",
    )
    label = plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)[-1].label
    assert not {"mit", "ab", "und", "die", "wir", "zwei"} & set(label.lower().split()), label


def test_initials_of_a_hint_are_capitals_and_identifiers_lead_nothing() -> None:
    """The hint `ci` is written CI; a hint that is an id or a number is not shown."""
    lines = (("Rig", "The nightly build of the firmware passed."), ("Jo", "The firmware fits into the flash."))
    assert plan_unit(SCOPE, talk(*lines, hints=(("ci", 900),)), SETTINGS)[-1].label.startswith("CI: ")
    for hint in ("4711", "a8f5f167f44f4964", "#17", "T-17"):
        label = plan_unit(SCOPE, talk(*lines, hints=((hint, 900),)), SETTINGS)[-1].label
        assert hint.lower().strip("#") not in label.lower(), label


async def test_a_long_summary_ends_with_how_many_more_there_are() -> None:
    """What does not fit into a group's summary is counted; no entry breaks off in the middle of a word."""
    day = 24 * 60 * MINUTE
    things = ("harpsichord", "conservatory", "lighthouse", "observatory", "greenhouse", "planetarium", "aqueduct")
    events = [
        event
        for n in range(16)
        for event in talk(
            ("Ana", f"The restoration of the {things[n % 7]} and the varnish of the staircase number {n}."),
            ("Bo", f"The {things[n % 7]} and the upholstery of the grand salon!"),
            start=MAY_8 + n % 4 * 30 * day + n * day,
            first_seq=n * 10,
        )
    ]
    _, nodes = await plan_scope(SCOPE, sorted(events, key=lambda event: event.position), SETTINGS)
    groups = [node for node in nodes if level_name(node.level) not in ("leaf", "unit", "part")]
    assert groups
    for node in groups:
        assert node.summary.endswith(".")
        assert "…" not in node.summary
        assert "Restoration of the harpsichord (8 May)" in node.summary
        assert len(node.summary) <= 600


def test_a_unit_is_listed_in_the_language_of_its_leaves() -> None:
    """The conjunction of a unit's label is that of most of its events."""
    lines = (
        "Die Wohnung in Altona hat einen kleinen Balkon, und der Makler ist nett.",
        "Wie hoch ist die Kaution für die Wohnung?",
        "Die Kaution ist nicht sehr hoch, und der Keller ist auch dabei.",
        "Unser Auto muss in die Werkstatt, die Bremsbeläge sind fast weg.",
        "Die Werkstatt in der Holstenstraße ist nicht so teuer.",
        "Dann bringe ich das Auto morgen in die Werkstatt, und die Reifen auch.",
        "Der Garten ist auch noch nicht fertig, und die Hecke ist zu hoch.",
        "Für die Hecke brauchen wir eine Leiter.",
    )
    nodes = plan_unit(SCOPE, talk(*((None, line) for line in lines)), SETTINGS)
    assert all(" and " not in node.label for node in nodes), [node.label for node in nodes]
