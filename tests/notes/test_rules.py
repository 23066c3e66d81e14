"""Kinds, what follows from them, and what is filled in: pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.errors import InvalidArgument
from myria.notes import drafting
from myria.notes.drafting import Draft, completed, inferred_kind, keywords_of
from myria.notes.kinds import importance_now, kinds_of, policies, policy_of, tier
from myria.notes.model import Changes
from myria.notes.subjects import subject_of


@pytest.mark.parametrize(
    ("kind", "importance"),
    [("preference", 0.95), ("error", 0.9), ("decision", 0.8), ("procedure", 0.7), ("relation", 0.6), ("fact", 0.5)],
)
def test_a_kind_has_the_importance_of_its_contract(kind: str, importance: float) -> None:
    """As in Memento's contract, 3.1; a caller's own counts instead."""
    assert completed(Draft(content="x", kind=kind), "memento").importance == importance
    assert completed(Draft(content="x", kind=kind, importance=0.0), "memento").importance == 0.0


def test_contracts_do_not_share_kinds_by_accident() -> None:
    """Each contract has its own names; a name of another one is refused, and the known ones are said."""
    assert kinds_of("memento") == ("fact", "decision", "error", "preference", "procedure", "relation", "episode")
    assert kinds_of("memtrace") == ("decision", "episodic", "session", "entity")
    with pytest.raises(InvalidArgument, match="fact, decision"):
        policy_of("entity", "memento")


@pytest.mark.parametrize(
    ("kind", "importance", "expected"),
    [
        ("preference", 0.1, "permanent"),
        ("fact", 0.8, "permanent"),
        ("error", 0.7, "hot"),
        ("procedure", 0.1, "hot"),
        ("fact", 0.5, "warm"),
        ("fact", 0.49, "cold"),
    ],
)
def test_a_new_note_has_the_tier_of_its_kind_and_importance(kind: str, importance: float, expected: str) -> None:
    """As in Memento's contract, 5.2, in its order."""
    assert tier(kind, importance, anchor=False, age_days=0, idle_days=0) == expected


_KINDS = st.sampled_from(sorted(policies()))
_SHARES = st.floats(0, 1)
_DAYS = st.floats(0, 10_000)
_ORDER = ["hot", "warm", "cold"]


@given(kind=_KINDS, importance=_SHARES, age=_DAYS, first=_DAYS, second=_DAYS)
def test_an_unused_note_only_grows_colder(
    kind: str, importance: float, age: float, first: float, second: float
) -> None:
    """Longer without use is never a warmer tier nor more importance; an anchor stays as it is."""
    less, more = sorted((first, second))
    age = max(age, more)
    before = tier(kind, importance, anchor=False, age_days=age, idle_days=less)
    after = tier(kind, importance, anchor=False, age_days=age, idle_days=more)
    assert (before == "permanent") == (after == "permanent")
    assert before == "permanent" or _ORDER.index(before) <= _ORDER.index(after)
    assert importance_now(kind, importance, anchor=False, idle_days=more) <= importance_now(
        kind, importance, anchor=False, idle_days=less
    )
    assert tier(kind, importance, anchor=True, age_days=age, idle_days=more) == "permanent"
    assert importance_now(kind, importance, anchor=True, idle_days=more) == importance


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("Ana prefers tea over coffee", "preference"),
        ("アナは紅茶が好き", "preference"),
        ("The deploy failed with a timeout", "error"),
        ("We decided to open on 14 April", "decision"),
        ("How to fire the kiln: open the vent", "procedure"),
        ("The shop depends on the payments service", "relation"),
        ("The kiln stands in the shed", "fact"),
    ],
)
def test_a_kind_is_inferred_by_rule(content: str, kind: str) -> None:
    """By the words that such statements use, whoever makes them."""
    assert inferred_kind(content) == kind
    assert "type" in completed(Draft(content=content), "memento").inferred
    assert completed(Draft(content=content, kind="fact", topic="t", keywords=("K",)), "memento").inferred == (
        "importance",
    )


@given(
    before=st.text(st.characters(codec="utf-8"), max_size=8),
    words=st.sampled_from(
        ["Décidé", "PRÉFÈRE", "it timed out", "first, do, then", "好き", "1) x", "sister OF", "ran `"]
    ),
    after=st.text(st.characters(codec="utf-8"), max_size=8),
)
def test_the_quick_look_misses_no_rule(before: str, words: str, after: str) -> None:
    """What the rules themselves find is found, whatever stands around it."""
    content = f"{before}{words}{after}"
    slow = next((kind for kind, _, rule in drafting._RULES if rule.search(content)), "fact")
    assert inferred_kind(content) == slow


def test_keywords_are_the_words_used_most() -> None:
    """Stop words and numbers are none; of equals, the earlier first."""
    assert keywords_of("The kiln and the glaze: kilns need a glaze, 1200 degrees, and patience")[:2] == (
        "kiln",
        "glaze",
    )
    assert keywords_of("") == ()


@pytest.mark.parametrize(
    ("content", "keywords"),
    [
        ("Prefiero el té verde por la mañana, pero sin azúcar.", {"té", "verde", "azúcar"}),
        ("El despliegue falló porque no había espacio.", {"despliegue", "falló", "espacio"}),
        ("Tenemos que comprar pan", {"comprar", "pan"}),
        ("La reunion es a las tres porque el jefe no puede antes", {"reunion", "jefe"}),
        ("Je dois toujours acheter du pain sans sel.", {"acheter", "pain", "sel"}),
        ("Wir haben den Ofen ohne Deckel gebrannt.", {"ofen", "deckel", "gebrannt"}),
        ("Il treno per Roma parte sempre senza di noi.", {"treno", "roma", "parte"}),
        ("Поезд в Москву уже ушёл без нас.", {"поезд", "москву", "ушёл"}),
        ("会议改到周三下午。", set()),
        ("京大の図書館は月曜休みです。", set()),
        ("고양이 이름은 나비입니다.", set()),
        ("我们用 Kubernetes 部署。", {"kubernetes"}),
    ],
)
def test_keywords_are_words_in_every_language(content: str, keywords: set[str]) -> None:
    """Stop words of the text's own language are none, nor pieces of scripts without spaces."""
    assert set(keywords_of(content)) == keywords


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_any_text_can_be_completed(content: str) -> None:
    """No text breaks the rules, and what they give is bounded."""
    note = completed(Draft(content=content), "memento")
    assert note.kind in kinds_of("memento")
    assert len(note.keywords) <= 5
    assert note.topic


def test_an_amendment_takes_the_topic_of_the_old_words_away() -> None:
    """A topic that was taken from the text is taken from the new one; one that somebody named stays."""
    text = "Lisbon, Lisbon: the flat beside the castle"
    inferred = completed(Draft(content=text), "memento")
    assert inferred.topic == "lisbon"
    amended = Changes(content="Porto, Porto: the flat beside the river").of(inferred, "memento")
    assert amended.topic == "porto"
    assert "lisbon" not in amended.keywords
    named = completed(Draft(content=text, topic="homes"), "memento")
    assert Changes(content="Porto, Porto").of(named, "memento").topic == "homes"
    assert Changes(importance=0.9).of(inferred, "memento").topic == "lisbon"


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("We decided to use PostgreSQL for the event log", "postgresql"),
        ("Decided: preorders open on 14 April", "preorders"),
        ("I always want tea without sugar", "tea"),
        ("He hates cilantro", "cilantro"),
        ("The deployment failed because the certificate expired", "deployment"),
        ("Remember that the wifi password is on the fridge", "wifi"),
        ("We chose Kotlin over Java for the Android client", "kotlin"),
        ("Yesterday we discussed the budget", "budget"),
        ("Prefer composition over inheritance", "composition"),
        ("Root cause: the cache was never invalidated after a rename", "cache"),
        ("The kiln needs care; the kiln is old", "kiln"),
        ("Wir haben entschieden, PostgreSQL zu verwenden", "postgresql"),
        ("Der Ofen wird freitags gebrannt", "ofen"),
        ("Nous avons décidé de changer le fournisseur", "fournisseur"),
        ("La livraison a échoué à cause de la douane", "livraison"),
        ("Hemos decidido usar Kubernetes", "kubernetes"),
        ("El servidor está en Madrid", "servidor"),
        ("Decidimos abrir as encomendas em abril", "encomendas"),
        ("Abbiamo deciso di usare il forno elettrico", "forno"),
        ("We hebben besloten de oven te vervangen", "oven"),
        ("배포는 금요일에 하기로 결정했다", "배포"),
        ("日本の陶芸が好きです", "日本"),
        ("我们决定使用PostgreSQL", "postgresql"),
        ("", "general"),
        ("42", "general"),
    ],
)
def test_an_inferred_topic_is_what_a_note_is_about(text: str, topic: str) -> None:
    """No verb of deciding, liking or keeping, and no function word, in any language; and the answer says so."""
    assert subject_of(text) == topic
    note = completed(Draft(content=text), "memento")
    assert (note.topic, "topic" in note.inferred) == (topic, True)
