"""Facts: what a text states of its writer, by form, and how facts are ranked."""

from __future__ import annotations

import pathlib

import pytest

from myria.notes.turns.facts import Fact, KnownFact
from myria.notes.turns.ranking import best_facts, recall_score, terms_of
from myria.notes.turns.stating import rules, statements_in

HOUR = 3_600 * 10**6
SAID = pathlib.Path(__file__).parent / "said"
LEAST_PRECISION, LEAST_RECALL = 0.98, 0.60


def found(*texts: str) -> list[tuple[str, str, str]]:
    return [(f"{fact.fact_id}/{fact.key}", fact.tier, fact.value) for fact in statements_in(texts).facts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My name is Ada.", [("user_name/name", "L0", "Ada")]),
        ("My name is Ana and I live in Porto.", [("user_name/name", "L0", "Ana"), ("user_home/home", "L0", "Porto")]),
        ("I am allergic to penicillin", [("user_allergy:penicillin/allergy", "L0", "penicillin")]),
        ("I prefer dark mode, always", [("user_preference/preference", "L0", "dark mode")]),
        ("i like tea!", [("user_like/like", "L2", "tea")]),
        ("Today I need milk; eggs", [("today_task/today_task", "L1", "milk")]),
        ("This week I need a bike\nsoon", [("weekly_task/weekly_task", "L2", "a bike")]),
        ("I like tea. I like coffee.", [("user_like/like", "L2", "tea")]),
        ("I like tea, cake and long walks", [("user_like/like", "L2", "tea, cake and long walks")]),
        ("Mein Name ist Jürgen Groß.", [("user_name/name", "L0", "Jürgen Groß")]),
        (
            "Me llamo Inês, y prefiero té.",
            [("user_name/name", "L0", "Inês"), ("user_preference/preference", "L0", "té")],
        ),
        ("Je m\u2019appelle Zoé", [("user_name/name", "L0", "Zoé")]),
        ("我叫小明。", [("user_name/name", "L0", "小明")]),
        ("私の名前は由紀です", [("user_name/name", "L0", "由紀")]),
        ("My name is Ana, can you help me with taxes?", [("user_name/name", "L0", "Ana")]),
        ("My name is Ana, isn't it?", []),
        ("Hi like-minded people", []),
        ("my name is ", []),
        ("my name is .", []),
        ("My Name Is Earl", []),
        ("MY NAME IS NOT IMPORTANT", []),
    ],
)
def test_what_a_text_says_of_its_writer(text: str, expected: list[tuple[str, str, str]]) -> None:
    """A clause that is a phrase of a rule states its value, as it was written; of one identity the first counts."""
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "identity", "value"),
    [
        ("I moved to Évora.", "user_home/home", "Évora"),
        ("I've moved to Ghent, Belgium.", "user_home/home", "Ghent, Belgium"),
        ("Ich bin nach Husum gezogen.", "user_home/home", "Husum"),
        ("J'ai déménagé à Brest.", "user_home/home", "Brest"),
        ("Me he mudado a Bilbao.", "user_home/home", "Bilbao"),
        ("Я переехала в Томск.", "user_home/home", "Томск"),
        ("我搬到苏州了。", "user_home/home", "苏州"),
        ("私は京都に引っ越しました。", "user_home/home", "京都"),
        ("My name is now Ana Lopes.", "user_name/name", "Ana Lopes"),
        ("I now work as a baker.", "user_work/work", "baker"),
    ],
)
def test_a_change_is_a_newer_value_of_the_same_fact(text: str, identity: str, value: str) -> None:
    """Else what it replaces is told as if it still held."""
    assert [(found_as, said) for found_as, _, said in found(text)] == [(identity, value)]


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Lisbon in 2010.",
        "I moved to Paris, but came back.",
        "I moved to Marketing.",
        "Me mudé a Sevilla, pero volví.",
        "I moved to Lisbon when I was a child.",
        "I moved to the next chapter.",
        "If I moved to Rome, I would eat well.",
        "We moved to GitHub.",
        "Should I have moved to Rome?",
    ],
)
def test_a_move_of_long_ago_or_of_another_kind_is_no_home(text: str) -> None:
    """Where somebody once went is not where he lives."""
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "identity", "value"),
    [
        ("I no longer live in Porto.", "user_home", "Porto"),
        ("Actually, I don't live in Porto any more.", "user_home", "Porto"),
        ("I don't live in Porto anymore, I moved last week", "user_home", "Porto"),
        ("I moved away from Porto.", "user_home", "Porto"),
        ("I'm not allergic to nuts after all.", "user_allergy:nuts", "nuts"),
        ("It turns out I am not allergic to nuts", "user_allergy:nuts", "nuts"),
        ("I no longer have a peanut allergy.", "user_allergy:peanut", "peanut"),
        ("I'm no longer vegan.", "user_diet", "vegan"),
        ("I no longer work as a nurse, because of my back.", "user_work", "nurse"),
        ("I don't like black coffee any more.", "user_like", "black coffee"),
        ("I no longer prefer dark mode", "user_preference", "dark mode"),
        ("Ich wohne nicht mehr in Hof.", "user_home", "Hof"),
        ("Ich bin doch nicht allergisch gegen Nüsse.", "user_allergy:nüsse", "Nüsse"),
        ("Ich bin keine Veganerin mehr.", "user_diet", "Veganerin"),
        ("Ich arbeite nicht mehr als Koch.", "user_work", "Koch"),
        ("Ya no vivo en Sevilla.", "user_home", "Sevilla"),
        ("Al final no soy alérgica a los frutos secos.", "user_allergy:frutos secos", "frutos secos"),
        ("Ya no soy vegetariano.", "user_diet", "vegetariano"),
        ("Je n’habite plus à Lyon.", "user_home", "Lyon"),
        ("Finalement, je ne suis pas allergique aux noix.", "user_allergy:noix", "noix"),
        ("Je ne travaille plus comme cuisinier.", "user_work", "cuisinier"),
        ("Já não moro em Braga.", "user_home", "Braga"),
        ("Não moro mais no Porto.", "user_home", "Porto"),
        ("Eu não sou mais vegana", "user_diet", "vegana"),
        ("Afinal não sou alérgico a amendoim.", "user_allergy:amendoim", "amendoim"),
        ("私はもう京都に住んでいません。", "user_home", "京都"),
        ("実は、私はナッツアレルギーではありませんでした。", "user_allergy:ナッツ", "ナッツ"),
        ("もうベジタリアンではありません", "user_diet", "ベジタリアン"),
        ("Я больше не живу в Томск.", "user_home", "Томск"),
        ("我不再住在上海。", "user_home", "上海"),
    ],
)
def test_what_a_text_denies_of_its_writer(text: str, identity: str, value: str) -> None:
    """It names the fact that it ends, and states none."""
    said = statements_in(["Hello", text])
    assert [(place, fact.fact_id, fact.value) for place, fact in said.denied] == [(1, identity, value)]
    assert said.facts == ()


@pytest.mark.parametrize(
    "text",
    [
        "If I no longer live in Porto, who gets my mail?",
        "I don't live in Porto any more, do I?",
        "I'm not allergic to nuts?",
        "She says I no longer live in Porto.",
        '"I no longer live in Porto," he wrote.',
        "I don't live in Porto with my parents.",
        "I don't live in Porto because of the weather but because of my work.",
        "I don't like tea when it is cold.",
        "I no longer live in Porto, I think.",
        "I'm not allergic to nuts or milk.",
        "I'm not sure.",
        "I am not a fan.",
        "We no longer live in Porto.",
        "My sister no longer lives in Porto.",
        "Translate: I no longer live in Porto.",
        "Wenn ich nicht mehr in Hof wohne, melde ich mich ab.",
        "Ich wohne nicht mehr in Hof, glaube ich.",
        "Je n'habite plus à Lyon ?",
        "Si ya no vivo en Sevilla, ¿qué hago?",
        "もう京都に住んでいませんか？",
    ],
)
def test_what_is_no_certain_denial_ends_nothing(text: str) -> None:
    """Questions, suppositions, others, quotations, doubts, and what denies a part alone."""
    assert statements_in([text]).denied == ()


def test_of_a_fact_that_is_stated_and_denied_the_last_counts() -> None:
    """Another value that is denied says nothing of the one that is stated."""
    moved = statements_in(["I no longer live in Porto. I live in Faro."])
    back = statements_in(["I live in Faro and I no longer live in Porto."])
    gone = statements_in(["I live in Porto.", "I no longer live in Porto."])
    assert [[fact.value for fact in said.facts] for said in (moved, back, gone)] == [["Faro"], ["Faro"], []]
    assert [[fact.value for _, fact in said.denied] for said in (moved, back, gone)] == [[], [], ["Porto"]]


@pytest.mark.parametrize("name", ["seen", "blind", "fresh", "last", "final", "unseen"])
def test_what_is_kept_is_right_and_most_is_kept(name: str) -> None:
    """Sentences in ten languages, half of which state nothing: 200 before the rules were made, the others after."""
    right = kept = stated = 0
    for line in (SAID / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        _, text, facts = line.split("\t")
        wanted = dict(fact.split("=") for fact in facts.split("; ") if fact)
        given = {
            fact.fact_id.partition(":")[0]: fact.value for fact in statements_in([text.replace("\\n", "\n")]).facts
        }
        stated, kept = stated + len(wanted), kept + len(given)
        right += sum(value in wanted.get(fact_id, "").split("|") for fact_id, value in given.items())
    print(f"{name}: precision {right / kept:.3f}, recall {right / stated:.3f} of {stated} facts")
    assert right >= LEAST_PRECISION * kept
    assert right >= LEAST_RECALL * stated


@pytest.mark.parametrize("text", (SAID / "nothing.txt").read_text(encoding="utf-8").splitlines())
def test_nothing_is_kept_that_nobody_stated(text: str) -> None:
    """Questions, suppositions, negations, quotations, others, hedges, jokes, code and lists state nothing."""
    assert found(text) == []


def test_a_second_allergy_is_beside_the_first() -> None:
    """Each is a fact of its own, whatever its case."""
    assert found("I'm allergic to nuts.", "I am allergic to penicillin", "i am allergic to Nuts") == [
        ("user_allergy:nuts/allergy", "L0", "nuts"),
        ("user_allergy:penicillin/allergy", "L0", "penicillin"),
    ]


def test_a_value_that_is_longer_than_128_bytes_is_none() -> None:
    """Nobody knows where it ends."""
    assert found("my name is " + "É" * 64) == [("user_name/name", "L0", "É" * 64)]
    assert found("my name is " + "É" * 65) == []


def test_only_the_beginning_of_a_turn_is_read() -> None:
    """What is pasted below states nothing; a turn is no list of facts."""
    assert found("word " * 1_000 + ". My name is Ada.") == []
    assert found("I like tea." + " word" * 1_000, "My name is Ada.") == [("user_like/like", "L2", "tea")]
    assert len(found(*(f"I am allergic to nuts{number}" for number in range(50)))) == 16


def test_the_contract_s_rules_come_first_of_their_kind() -> None:
    """Its five rules have their tiers and confidences, the English phrase first."""
    known = {rule.fact_id: (rule.key, rule.tier, rule.confidence, rule.phrases[0]) for rule in rules()}
    contract = {
        "user_name": ("name", "L0", 0.95, "my name is …"),
        "user_preference": ("preference", "L0", 0.92, "i prefer …"),
        "user_like": ("like", "L2", 0.85, "i like …"),
        "today_task": ("today_task", "L1", 0.80, "today i need …"),
        "weekly_task": ("weekly_task", "L2", 0.82, "this week i need …"),
    }
    assert known.items() >= contract.items()


def known(name: str, *, tier: str = "L0", at: int = 0, confidence: float = 0.9) -> KnownFact:
    fact = Fact(fact_id=name, key="k", value=name, tier=tier, confidence=confidence)  # type: ignore[arg-type]
    return KnownFact(note_id=f"note_{name}", event_id="evt", version=1, fact=fact, at=at)


def test_the_score_is_the_contract_s() -> None:
    """Confidence, a bonus of the tier, freshness, and matching words."""
    assert recall_score(known("tea"), frozenset(), 0) == pytest.approx(0.9 + 0.35 + 0.25)
    assert recall_score(known("tea", tier="L1"), frozenset(), 24 * HOUR) == pytest.approx(0.9 + 0.10 + 0.15)
    assert recall_score(known("tea", tier="L2"), frozenset(), 240 * HOUR) == pytest.approx(0.9 + 0.20)
    assert recall_score(known("tea"), terms_of("Tea, or what?"), 240 * HOUR) == pytest.approx(0.9 + 0.35 + 0.25 + 0.15)


def test_of_equals_the_newer_and_then_the_surer_comes_first() -> None:
    """Beyond the time in which freshness counts."""
    facts = [known("old"), known("new", at=HOUR)]
    assert [fact.note_id for fact in best_facts(facts, frozenset(), 10_000 * HOUR, 2)] == ["note_new", "note_old"]
    assert len(best_facts(facts, frozenset(), 0, 1)) == 1
