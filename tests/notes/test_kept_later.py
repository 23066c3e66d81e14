"""A note that names only what it replaces is found by a question that the older one answers, and stands above it."""

from __future__ import annotations

import pytest

from myria.index import Corpus, Doc, LooseBlock
from myria.log.fields import parse_timestamp
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.fragments import Fragment
from myria.notes.model import NOTE_TYPE
from myria.notes.questions import RecallQuery
from myria.search.question import Question
from myria.search.ranking import rank
from tests.support.building import build_now
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")
NOW = "2026-06-01T12:00:00Z"

CHANGES = (
    ("Who is our intern?", "The intern this term is Callum Reid.", "Callum has left and Beatriz sits at his desk."),
    ("Which db do we use?", "The db we use is MariaDB.", "MariaDB is gone, everything lies in CockroachDB."),
    ("Wo steht der Trecker?", "Der Trecker steht bei Ahlers.", "Ahlers braucht Platz, nun ist er hinter der Mühle."),
    ("¿Quién riega el jardín?", "El jardín lo riega Hortensia.", "Hortensia se mudó, de eso se encarga Bastián."),
    ("Qui garde le chat ?", "C'est Solène qui garde le chat.", "Solène est partie, Hugo passe le nourrir."),
    ("配達の車は何？", "配達の車は軽トラックです。", "軽トラックは廃車、今は日産のバン。"),
)
OTHERS = (
    "The kettle whistles at eleven.",
    "Die Lampe ist grün.",
    "El mate es de plata.",
    "La clé est bleue.",
    "鍵は棚。",
)


async def keep(memory: Memory, content: str, moment: str) -> None:
    notes = memory.notes
    await notes.remember(
        TENANT, US, Draft(content=content), contract="memento", speaker="bot", now=parse_timestamp(moment)
    )


async def recalled(memory: Memory, asked: str) -> list[Fragment]:
    query = RecallQuery(masks=Masks.containing(US), now=parse_timestamp(NOW), text=asked)
    return list(await memory.recall.find(TENANT, query))


@pytest.mark.parametrize(("asked", "older", "newer"), CHANGES)
@pytest.mark.parametrize("moment", ["2026-05-01T09:00:00Z", "2026-01-05T09:00:01Z"])
async def test_what_replaces_the_best_answer_stands_above_it(
    memory: Memory, asked: str, older: str, newer: str, moment: str
) -> None:
    """The newer note comes first, months or a second later, and both say which is which."""
    await keep(memory, older, "2026-01-05T09:00:00Z")
    for other in OTHERS:
        await keep(memory, other, "2026-02-01T09:00:00Z")
    await keep(memory, newer, moment)
    first, second, *_ = await recalled(memory, asked)
    assert [(first.text, first.change), (second.text, second.change)] == [(newer, "newer"), (older, "older")]


async def test_an_older_note_in_a_snapshot_is_replaced_by_a_newer_one_behind_it(
    memory: Memory, database: Database
) -> None:
    """It does not matter which of the two a build has taken in."""
    asked, older, newer = CHANGES[0]
    await keep(memory, older, "2026-01-05T09:00:00Z")
    await build_now(database.dsn)
    await keep(memory, newer, "2026-05-01T09:00:00Z")
    assert [fragment.text for fragment in await recalled(memory, asked)][:2] == [newer, older]


async def test_a_later_note_that_only_names_the_same_person_moves_nothing(memory: Memory) -> None:
    """Notes about one person tell many things of her: the answer stays first."""
    answer = "Priscilla keeps her passport in the blue drawer."
    await keep(memory, answer, "2026-01-05T09:00:00Z")
    await keep(memory, "Priscilla would like tea with oat milk.", "2026-03-01T09:00:00Z")
    await keep(memory, "Priscilla now swims on Mondays.", "2026-04-01T09:00:00Z")
    assert (await recalled(memory, "Where does Priscilla keep her passport?"))[0].text == answer


@pytest.mark.parametrize(
    ("asked", "answer", "others"),
    [
        (
            "What does server alpha run?",
            "Server alpha runs Debian 12.",
            ("Server beta runs Debian 11.", "Server gamma runs Fedora 40 now."),
        ),
        (
            "How much is the rent of the flat in Ulm?",
            "The rent of the flat in Ulm is 900.",
            ("The rent of the flat in Hof is 700.",),
        ),
        (
            "Who owns the billing service?",
            "The billing service is owned by Mara.",
            ("The search service is owned by Lee.", "The mail service is now owned by Mara."),
        ),
        (
            "On which port does redis listen?",
            "redis listens on port 6379.",
            ("nginx listens on port 8080.", "postgres listens on port 5433."),
        ),
        (
            "Wie heißt der Lehrer von Mia?",
            "Der Lehrer von Mia heißt Brandt.",
            ("Der Lehrer von Ole heißt Kern.", "Der Lehrer von Ben heißt Brandt."),
        ),
        (
            "¿Qué día ensaya el coro infantil?",
            "El coro infantil ensaya los lunes.",
            ("El coro juvenil ensaya los jueves.",),
        ),
    ],
)
async def test_the_same_of_another_thing_moves_nothing(
    memory: Memory, asked: str, answer: str, others: tuple[str, ...]
) -> None:
    """Notes in the same words about other things of the kind stay below the one that is asked for."""
    await keep(memory, answer, "2026-01-05T09:00:00Z")
    for day, other in enumerate((*others, *OTHERS), 1):
        await keep(memory, other, f"2026-03-{day:02}T09:00:00Z")
    first, *_ = await recalled(memory, asked)
    assert (first.text, first.change) == (answer, None)


async def test_a_question_about_the_past_is_answered_by_what_held_then(memory: Memory) -> None:
    """Asked who the intern was before, the older note comes first."""
    _, older, newer = CHANGES[0]
    await keep(memory, older, "2026-01-05T09:00:00Z")
    await keep(memory, newer, "2026-05-01T09:00:00Z")
    assert (await recalled(memory, "Who was our previous intern?"))[0].text == older


async def test_what_was_replaced_twice_is_answered_by_the_newest(memory: Memory) -> None:
    """Of three states in a chain the last comes first."""
    await keep(memory, "The intern this term is Callum Reid.", "2026-01-05T09:00:00Z")
    await keep(memory, "Callum has left and Beatriz is the intern.", "2026-03-01T09:00:00Z")
    await keep(memory, "The intern Callum recommended, Jo, sits at the desk now.", "2026-05-01T09:00:00Z")
    assert (await recalled(memory, "Who is our intern?"))[0].text.startswith("The intern Callum recommended")


def test_a_search_of_events_puts_no_note_about_another_thing_first() -> None:
    """Notes are events, too: what tells of another server stands below the one that is asked for."""
    texts = ("Server alpha runs Debian 12.", "Server beta runs Debian 11.", *OTHERS)
    docs = [
        Doc.of_payload({"text": text}, event_seq=seq, timestamp=seq * 60_000_000, channel="notes", type=NOTE_TYPE)
        for seq, text in enumerate(texts, 1)
    ]
    found = rank(Question(text="What does server alpha run?"), Corpus(tail=LooseBlock().extended(docs)))
    assert [hit.event_seq for hit in found.hits] == [1, 2]
