"""Events get vectors once per text, and a question is compared with those of what its caller sees; nothing waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.erasure.commands import Erasures
from myria.erasure.model import Selection
from myria.index.embeddings import keeping
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import EmbeddingsSettings, Settings
from tests.llm.conftest import KEY, Starting
from tests.llm.provider import Answer, Asked, Provider
from tests.reads.asking import append, ask, events_of, pages, statements_of, texts_of, walk
from tests.server.test_agent import ask as ask_agent
from tests.server.test_agent import keep
from tests.server.wire import serving
from tests.support import builds
from tests.support.events import TENANT, event
from tests.support.patience import until
from tests.support.postgres import Database

MEANINGS = (
    ("allergy", "peanuts", "swell", "airway", "eating"),
    ("train", "late", "station", "delay"),
    ("fence", "painted", "garden", "colour"),
    ("cinema", "film", "movie"),
)
"""Words that the scripted model takes for one thing each."""

ANSWER = "peanuts make my throat swell"
QUESTION = "trouble after a meal or eating out"
TALK = ("we saw a movie at the cinema", ANSWER, "the train was late again", "we painted the fence green")


def embedded(asked: Asked) -> Answer:
    """Answer as an endpoint does: one component for each meaning that a text has words of."""
    data = []
    for index, text in enumerate(asked.body["input"]):
        words = set(text.lower().replace(",", " ").split())
        data.append({"index": index, "embedding": [0.05, *(float(len(words & set(some))) for some in MEANINGS)]})
    return Answer(body=orjson.dumps({"object": "list", "data": data, "model": "scripted/embed"}))


def answering(answer: Answer, _: Asked) -> Answer:
    """Answer the same to whatever is asked."""
    return answer


def sent(provider: Provider) -> list[str]:
    """Return every text that the endpoint was sent."""
    return [text for asked in provider.asked for text in asked.body["input"]]


Embedding = Callable[..., Settings]


@pytest.fixture
def embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embedding:
    """Return settings under which a provider computes vectors: `embedding(provider)`."""
    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    template = tmp_path / "embeddings.json"
    template.write_bytes(
        orjson.dumps({"model": "scripted/embed", "headers": {"Authorization": "Bearer ${SCRIPTED_KEY}"}})
    )

    def settings(provider: Provider, **fields: Any) -> Settings:
        patient: dict[str, Any] = {"question_deadline_s": 60.0}
        return replace(
            Settings(),
            embeddings=EmbeddingsSettings(
                model="endpoint", template=str(template), base_url=provider.url, **{**patient, **fields}
            ),
        )

    return settings


@asynccontextmanager
async def catching_up(database: Database, settings: Settings) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Lend what the control plane does to give events their vectors, with its rights."""

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    async with Pool(database.operator_dsn) as pool:
        loop = ControlLoop(pool, settings, launch)
        try:
            yield loop.embed
        finally:
            await loop.close()


def talk(texts: Sequence[str] = TALK, **fields: Any) -> list[Any]:
    return [event(3600 * at, text, **fields) for at, text in enumerate(texts)]


def query(text: str | None = QUESTION, **fields: Any) -> EventNodesQuery:
    return EventNodesQuery(**{"participants": ("ana", "ben"), "query": text, **fields})


async def test_a_question_in_other_words_finds_its_answer_in_the_tail_and_in_the_tree(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """What the catch-up or the builder embedded is found by meaning; without vectors it is not found at all."""
    settings = embedding(provide(embedded))
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        assert texts_of(await ask(memory, query())) == []
        assert await catch_up() == len(TALK)
        assert texts_of(await ask(memory, query()))[0] == ANSWER
        assert await catch_up() == 0
        await append(memory, [event(90_000, "an allergy: my airway closes when eating nuts")])
        await builds.build(database, configured=settings)
        found = await ask(memory, query())
        assert set(texts_of(found)[:2]) == {ANSWER, "an allergy: my airway closes when eating nuts"}
        assert found["counts"]["indexed"] == found["counts"]["events"]
        assert await builds.value(database, "SELECT count(*) FROM myria.text_vectors") == len(TALK) + 1


async def test_each_text_is_sent_once_however_often_it_is_said(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """Equal texts share a vector; events without a text have none and are not looked at again; credentials go along."""
    provider = provide(embedded)
    settings = embedding(provider, catch_up_events=2)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk(["thank you", "ok", "thank you", "", "ok"]))
        await append(memory, talk(["thank you"], participants=("zoe",)))
        assert [await catch_up() for _ in range(5)] == [2, 2, 2, 0, 0]
        assert sorted(sent(provider)) == ["ok", "thank you"]
        assert await builds.value(database, "SELECT count(*) FROM myria.event_vectors WHERE digest IS NOT NULL") == 5
        assert {asked.headers["authorization"] for asked in provider.asked} == {f"Bearer {KEY}"}


async def test_what_a_picture_shows_is_found_by_its_meaning(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """The vector of an event is that of its text and what describes its pictures."""
    settings = embedding(provide(embedded))
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk([*TALK[:1], "look at this"]))
        await append(memory, [event(90_000, payload={"text": "look at this", "image": {"alt": f"so {ANSWER} badly"}})])
        await catch_up()
        (found, *_) = events_of(await ask(memory, query()))
        assert "image" in found["payload"]


async def test_vectors_of_others_change_no_byte_of_an_answer(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """What somebody may not see moves neither hits nor scores, in vectors as in words."""
    settings = embedding(provide(embedded))
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        await catch_up()
        before = await ask(memory, query())
        await append(memory, talk(["peanuts swell", "my airway", "eating peanuts"], participants=("zoe",)))
        await append(memory, talk(["allergy"], participants=("ana",)))
        await catch_up()
        assert await ask(memory, query()) == before
        assert "allergy" in texts_of(await ask(memory, query(participants=("ana",))))


async def test_without_a_vector_in_time_the_words_answer(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """An endpoint that fails, hangs or changes its dimensions costs a read its deadline at most and no hit."""
    release = threading.Event()
    provider = provide(embedded)
    settings = embedding(provider, question_deadline_s=0.2)
    async with Memory(database.server_dsn, Settings()) as plain:
        await append(plain, talk())
        async with catching_up(database, settings) as catch_up:
            await catch_up()
        expected = await ask(plain, query("the fence"))
        for number, wrong in enumerate(
            (
                Answer(status=500),
                Answer(release=release),
                Answer(body=b'{"data": [{"index": 0, "embedding": [1, 2]}]}'),
                Answer(body=b"no json"),
            )
        ):
            provider.script = partial(answering, wrong)
            async with Memory(database.server_dsn, settings) as again:
                assert await ask(again, query("the fence")) == expected, number
                assert again.retrieval.questions is not None
                assert again.retrieval.questions.figures() == {"computed": int(number == 2), "failed": int(number != 2)}
    release.set()


async def test_a_slow_endpoint_holds_no_connection(database: Database, provide: Starting, embedding: Embedding) -> None:
    """While questions wait for their vectors nothing of PostgreSQL is theirs, and reads that need none are served."""
    release = threading.Event()
    provider = provide(embedded)
    settings = embedding(provider)
    settings = replace(settings, postgres=replace(settings.postgres, pool_size=2))
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        await catch_up()
        before = len(provider.asked)
        provider.script = lambda asked: replace(embedded(asked), release=release)
        questions = [f"{QUESTION} number {number}" for number in range(5)]
        asking = [asyncio.create_task(ask(memory, query(text))) for text in questions]
        try:
            await until(lambda: len(provider.asked) == before + len(asking), "every question is at the endpoint")
            assert memory.database.in_use == 0
            assert len(texts_of(await ask(memory, query(None)))) == len(TALK)
            assert not any(task.done() for task in asking)
        finally:
            release.set()
        assert [texts_of(answer)[0] for answer in await asyncio.gather(*asking)] == [ANSWER] * len(asking)
        assert len(provider.asked) == before + len(asking)


async def test_pages_compare_what_the_first_page_compared(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """Vectors that come between two pages move nothing: pages neither repeat nor omit."""
    settings = embedding(provide(embedded))
    texts = [f"the train number {number} was late" for number in range(12)]
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk([*texts[:6], *TALK]))
        await catch_up()
        await append(memory, talk(texts[6:]))
        whole = texts_of(await ask(memory, query("delay of the train", limit=100)))
        first = await ask(memory, query("delay of the train", limit=4))
        await catch_up()
        rest = await pages(memory, query("delay of the train", limit=4, cursor=first["next_cursor"]))
        assert [text for page in (first, *rest) for text in texts_of(page)] == whole


async def test_below_a_root_only_its_scope_is_compared(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """A question below a root reads no vectors of other scopes, and none where its scope holds too many events."""
    settings = embedding(provide(embedded), visible_events=8)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        await append(memory, talk(participants=("ana", "zoe")))
        await catch_up()
        await builds.build(database, configured=settings)
        read = statements_of(memory)
        assert texts_of(await ask_below_a_topic(memory))[0] == ANSWER
        (scopes,) = [arguments[2] for name, arguments in read if name == "vectors.of_scopes"]
        assert len(scopes) == 1
        await append(memory, talk(["more of this"] * 8))
        await builds.build(database, configured=settings)
        assert texts_of(await ask_below_a_topic(memory)) == []


async def ask_below_a_topic(memory: Memory) -> Any:
    """Ask below the lowest topic of ana and ben that holds the answer."""
    tree = await ask(memory, ReferencesQuery(participants=("ana", "ben"), query=ANSWER, max_nodes=8))
    *_, topic = [node["topic_id"] for node in walk(tree["root"]) if "topic_id" in node]
    return await ask(memory, ReferencesQuery(participants=("ana",), query=QUESTION, root=topic))


async def test_erasing_removes_the_vectors_of_what_was_said(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """The vector of an erased text is gone unless another event says the same, and is not computed again."""
    settings = embedding(provide(embedded))
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        results = await append(memory, [*talk(), event(9_000, TALK[0], participants=("zoe",))])
        await catch_up()
        async with Pool(database.operator_dsn) as pool:
            registry = Registry(pool, Settings())
            erasing = Erasures(pool, registry, event_log(pool), TENANT, actor="officer")
            chosen = Selection(events=(results[0].event_id, results[1].event_id))
            erasure_id = await erasing.start(chosen, reason="asked by the person")
            await erasing.run(erasure_id)
        assert await builds.value(database, "SELECT count(*) FROM myria.event_vectors") == 3
        assert await builds.value(database, "SELECT count(*) FROM myria.text_vectors") == 3
        assert await catch_up() == 0
        assert await builds.value(database, "SELECT count(*) FROM myria.text_vectors") == 3
        assert ANSWER not in texts_of(await ask(memory, query()))


async def test_vectors_of_a_former_model_are_removed_after_a_while(
    database: Database, provide: Starting, embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nothing has used for long goes, some at a time; what is in use stays; what comes back begins anew."""
    monkeypatch.setattr(keeping, "REMOVED_AT_ONCE", 3)
    provider = provide(embedded)
    settings = embedding(provider)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        await catch_up()
    async with Pool(database.operator_dsn) as pool:

        async def remove(model: str | None) -> int:
            return await keeping.remove_former(pool, model, after_s=7 * 86_400)

        async def pass_days() -> None:
            async with pool.write(TENANT) as connection:
                await connection.execute("UPDATE myria.vector_progress SET used_at = now() - interval '8 days'")

        assert await remove("another") == 0
        await pass_days()
        assert await remove("scripted/embed") == 0
        assert await remove("another") == 0, "it was in use a moment ago"
        await pass_days()
        monkeypatch.setattr(keeping, "MOST_STEPS", 1)
        assert await remove(None) == 6
        assert await builds.value(database, "SELECT count(*) FROM myria.event_vectors") == 1
        assert await remove(None) == 2
        assert await remove(None) == 0
        assert await builds.value(database, "SELECT count(*) FROM myria.vector_progress") == 0
    async with catching_up(database, settings) as catch_up:
        assert await catch_up() == len(TALK)


async def test_a_build_and_the_control_plane_meet(database: Database, provide: Starting, embedding: Embedding) -> None:
    """A build begins with the newest events, the control plane with the oldest: they share the work."""
    provider = provide(embedded)
    settings = embedding(provider, build_events=1, catch_up_events=2)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        await builds.build(database, configured=settings)
        assert sent(provider) == [TALK[-1]]
        assert await catch_up() == 2
        assert sent(provider)[1:] == list(TALK[:2])
        assert [await catch_up() for _ in range(3)] == [1, 0, 0]
        assert sorted(sent(provider)) == sorted(TALK)
        assert texts_of(await ask(memory, query()))[0] == ANSWER


async def test_what_fails_is_computed_later(database: Database, provide: Starting, embedding: Embedding) -> None:
    """A build publishes without vectors where their endpoint fails, and the catch-up makes up for it."""
    provider = provide(lambda _: Answer(status=503))
    settings = embedding(provider)
    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        built = await builds.build(database, configured=settings)
        assert built.snapshot_id is not None
        await memory.log.append_events("zeta", talk(["the film was long"]))
        provider.script = lambda asked: embedded(asked) if "film" in asked.body["input"][0] else Answer(status=400)
        assert await catch_up() == 1
        provider.script = embedded
        assert await catch_up() == len(TALK)
        assert texts_of(await ask(memory, query()))[0] == ANSWER


async def test_an_agent_is_told_what_vectors_did(database: Database, provide: Starting, embedding: Embedding) -> None:
    """How many they found, how many notes have one, and that a threshold bounds what is found by them alone."""
    settings = embedding(provide(embedded))
    async with (
        Memory(database.server_dsn, settings) as memory,
        serving(memory, settings) as served,
        catching_up(database, settings) as catch_up,
    ):
        for text in TALK:
            await keep(served, text)
        assert (await ask_agent(served, "recall", text=QUESTION))["searchPath"] == "words:0 → vectors:0"
        assert (await ask_agent(served, "memory_stats"))["stats"]["embedded"] == 0
        await catch_up()
        found = await ask_agent(served, "recall", text=QUESTION, fields=["id", "content", "explanations"])
        assert [fragment["content"] for fragment in found["fragments"]] == [ANSWER]
        assert found["searchPath"] == "vectors:1"
        assert (await ask_agent(served, "recall", text="the train"))["searchPath"] == "words:1 → vectors:0"
        assert (await ask_agent(served, "memory_stats"))["stats"]["embedded"] == len(TALK)
        assert (await ask_agent(served, "recall", text=QUESTION, threshold=0.3))["count"] == 1
        nothing = await ask_agent(served, "recall", text=QUESTION, threshold=1.0)
        assert (nothing["count"], nothing["searchPath"]) == (0, "words:0 → vectors:0")
        assert (await ask_agent(served, "recall", text="the train", threshold=1.0))["count"] == 1
        await keep(served, "a note that waits for its vector")
        assert (await ask_agent(served, "memory_consolidate"))["embeddingsAdded"] == len(TALK)


async def test_status_tells_that_vectors_wait_until_they_are_made(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """A wrong key stands in `status` with the provider's words, of builds and of upkeep, until a run goes well."""
    refusal = Answer(status=401, body=b'{"error": {"message": "Incorrect API key provided"}}')
    refused = [True]
    settings = embedding(provide(lambda asked: refusal if refused[0] else embedded(asked)))

    async def waits(pool: Pool) -> dict[str, Any]:
        told: dict[str, Any] = (await Registry(pool, settings).status(TENANT))["waits"]
        return told

    async with Memory(database.server_dsn, settings) as memory, catching_up(database, settings) as catch_up:
        await append(memory, talk())
        async with Pool(database.server_dsn) as pool:
            await builds.build(database, configured=settings)
            first = await waits(pool)
            await catch_up()
            assert await waits(pool) == first
            assert first["vectors"]["reason"] == "http_4xx: the endpoint answered 401: Incorrect API key provided"
            refused[0] = False
            assert await catch_up() == len(TALK)
            assert await waits(pool) == {}


async def test_work_that_is_switched_off_waits_for_nothing(
    database: Database, provide: Starting, embedding: Embedding
) -> None:
    """Once nobody makes vectors any more, upkeep forgets that they wait."""
    settings = embedding(provide(partial(answering, Answer(status=401, body=b"{}"))))
    async with Memory(database.server_dsn, settings) as memory:
        await append(memory, talk())
    async with catching_up(database, settings) as catch_up:
        await catch_up()

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    async with Pool(database.operator_dsn) as pool:
        assert set((await Registry(pool, settings).status(TENANT))["waits"]) == {"vectors"}
        loop = ControlLoop(pool, Settings(), launch)
        await loop.collect()
        await loop.close()
        assert (await Registry(pool, settings).status(TENANT))["waits"] == {}
