"""The best hits of a question are looked at once more by a model that re-ranks; nothing waits for it or needs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from myria.errors import ConfigurationError
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import SecondLookSettings, Settings
from tests.llm.conftest import KEY, Configuring, Starting
from tests.llm.fences import unfenced
from tests.llm.provider import Answer, Asked, Provider, calling, completion
from tests.reads.asking import append, ask, pages, texts_of
from tests.support import builds
from tests.support.events import TENANT, event
from tests.support.postgres import Database

TALK = tuple(f"the train to town number {number} was late" for number in range(12))
WANTED = TALK[7]
Looking = Callable[..., Settings]


def relevance(text: str, wanted: str = WANTED) -> float:
    """Return how relevant the scripted model finds a text: one of them very, the others as their numbers rise."""
    return 9.0 if text.endswith(wanted) else -5.0 - 0.1 * text.count("1")


def looked(asked: Asked) -> Answer:
    """Answer as Cohere, Jina, vLLM and llama.cpp do, best first."""
    assert asked.path.endswith("/rerank")
    results = [{"index": at, "relevance_score": relevance(text)} for at, text in enumerate(asked.body["documents"])]
    return Answer(body=orjson.dumps({"results": sorted(results, key=lambda one: -one["relevance_score"])}))


def looked_as_texts(asked: Asked) -> Answer:
    """Answer as Text Embeddings Inference does."""
    results = [{"index": at, "score": relevance(text)} for at, text in enumerate(asked.body["texts"])]
    return Answer(body=orjson.dumps(results))


def answering(answer: Answer, _: Asked) -> Answer:
    """Answer the same to whatever is asked."""
    return answer


@pytest.fixture
def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looking:
    """Return settings under which a provider looks at hits: `looking(provider)`."""
    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    template = tmp_path / "rerank.json"
    headers = {"Authorization": "Bearer ${SCRIPTED_KEY}"}
    template.write_bytes(orjson.dumps({"model": "scripted/rerank", "headers": headers}))

    def settings(provider: Provider, **fields: Any) -> Settings:
        patient: dict[str, Any] = {"deadline_s": 60.0, "weight_percent": 200}
        look = SecondLookSettings(
            model="endpoint", template=str(template), base_url=provider.url, **{**patient, **fields}
        )
        return replace(Settings(), second_look=look)

    return settings


def talk(texts: tuple[str, ...] = TALK, **fields: Any) -> list[Any]:
    return [event(3600 * at, text, **fields) for at, text in enumerate(texts)]


def query(text: str = "the late train to town", **fields: Any) -> EventNodesQuery:
    return EventNodesQuery(**{"participants": ("ana", "ben"), "query": text, **fields})


@pytest.mark.parametrize(("form", "script"), [("documents", looked), ("texts", looked_as_texts)])
async def test_what_the_model_finds_relevant_comes_first(
    database: Database, provide: Starting, looking: Looking, form: str, script: Callable[[Asked], Answer]
) -> None:
    """Both forms in use are spoken, in the tail and in the tree; equal questions ask the model once."""
    provider = provide(script)
    settings = looking(provider, form=form)
    async with Memory(database.server_dsn, settings) as memory:
        await append(memory, talk())
        async with Memory(database.server_dsn, Settings()) as plain:
            before = await ask(plain, query())
        assert texts_of(before)[0] != WANTED
        found = await ask(memory, query())
        assert texts_of(found)[0] == WANTED
        assert sorted(texts_of(found)) == sorted(texts_of(before))
        assert await ask(memory, query()) == found
        assert len(provider.asked) == 1
        assert provider.asked[0].headers["authorization"] == f"Bearer {KEY}"
        assert provider.asked[0].body["model"] == "scripted/rerank"
        await builds.build(database, configured=settings)
        references = ReferencesQuery(participants=("ana", "ben"), query="the late train to town", include_payload=True)
        answer = await ask(memory, references)
        ranked = sorted((node for node in _events(answer["root"])), key=lambda node: -node["score"])
        assert ranked[0]["payload"]["text"] == WANTED


async def test_only_what_the_caller_sees_is_shown_to_the_model(
    database: Database, provide: Starting, looking: Looking
) -> None:
    """What others say is not sent and moves no byte of an answer."""
    provider = provide(looked)
    async with Memory(database.server_dsn, looking(provider)) as memory:
        await append(memory, talk())
        before = await ask(memory, query())
        await append(memory, talk(("a late train of zoe",), participants=("zoe",)))
        await append(memory, talk(("ana alone waits for a late train",), participants=("ana",)))
        assert await ask(memory, query()) == before
        sent = [text for asked in provider.asked for text in asked.body["documents"]]
        assert sent
        assert not any("zoe" in text or "alone" in text for text in sent)


async def test_without_an_answer_in_time_the_ranking_stands(
    database: Database, provide: Starting, looking: Looking
) -> None:
    """An endpoint that fails, hangs or answers nonsense costs a read its deadline at most and changes no byte."""
    release = threading.Event()
    provider = provide(looked)
    settings = looking(provider, deadline_s=0.2)
    async with Memory(database.server_dsn, Settings()) as plain:
        await append(plain, talk())
        expected = await ask(plain, query(limit=100))
    for wrong in (
        Answer(status=500),
        Answer(release=release),
        Answer(body=b"no json"),
        Answer(body=b'{"results": [{"index": 0, "relevance_score": 1}]}'),
        Answer(body=b'{"results": "none"}'),
    ):
        provider.script = partial(answering, wrong)
        async with Memory(database.server_dsn, settings) as memory:
            assert await ask(memory, query(limit=100)) == expected
            assert memory.retrieval.look is not None
            assert memory.retrieval.look.figures() == {"looked": 0, "failed": 1}
    release.set()


async def test_an_endpoint_that_fails_again_and_again_is_left_alone(
    database: Database, provide: Starting, looking: Looking
) -> None:
    """After three failures in a row questions are answered without asking it."""
    provider = provide(partial(answering, Answer(status=503)))
    async with Memory(database.server_dsn, looking(provider)) as memory:
        await append(memory, talk())
        for number in range(6):
            assert texts_of(await ask(memory, query(f"the late train number {number}")))
        assert len(provider.asked) == 3


async def test_a_read_that_waits_holds_no_connection(database: Database, provide: Starting, looking: Looking) -> None:
    """While the model thinks about more questions than there are connections, everybody else reads."""
    release = threading.Event()
    come = threading.Event()

    def slow(asked: Asked) -> Answer:
        if asked.number == 12:
            come.set()
        return replace(looked(asked), release=release)

    settings = looking(provide(slow))
    settings = replace(settings, postgres=replace(settings.postgres, pool_size=2))
    async with Memory(database.server_dsn, settings) as memory:
        await append(memory, talk())
        waiting = [
            asyncio.create_task(ask(memory, query(f"the late train {chr(97 + number) * 9}"))) for number in range(12)
        ]
        assert await asyncio.to_thread(come.wait, 60)
        newest = await ask(memory, query(order="newest", limit=1))
        assert texts_of(newest) == [TALK[-1]]
        assert not any(task.done() for task in waiting)
        release.set()
        for answer in await asyncio.gather(*waiting):
            assert texts_of(answer)[0] == WANTED


@pytest.mark.parametrize("hits", [3, 5, 50])
async def test_pages_neither_repeat_nor_omit(
    database: Database, provide: Starting, looking: Looking, hits: int
) -> None:
    """Wherever pages end, beyond the hits that are looked at too, they are the whole answer; equal scores included."""
    provider = provide(looked)
    async with Memory(database.server_dsn, looking(provider, hits=hits)) as memory:
        await append(memory, talk())
        whole = texts_of(await ask(memory, query(limit=100)))
        assert sorted(whole) == sorted(TALK)
        for limit in (1, 2, 3, 4):
            found = await pages(memory, query(limit=limit))
            assert [text for page in found for text in texts_of(page)] == whole
        assert len(provider.asked) == 1


async def test_a_page_after_a_withdrawal_only_loses_what_was_withdrawn(
    database: Database, provide: Starting, looking: Looking
) -> None:
    """What is forgotten between two pages leaves the later ones, and nothing takes its place or goes with it."""
    async with Memory(database.server_dsn, looking(provide(looked), hits=5)) as memory:
        results = await append(memory, talk())
        ids = {text: result.event_id for text, result in zip(TALK, results, strict=True)}
        whole = texts_of(await ask(memory, query(limit=100)))
        first = await ask(memory, query(limit=2))
        gone = [ids[whole[3]], ids[whole[8]]]
        await memory.withdrawals.withdraw(TENANT, gone, "forgotten", may_see=lambda _: True)
        rest = await pages(memory, query(limit=2, cursor=first["next_cursor"]))
        told = [text for page in (first, *rest) for text in texts_of(page)]
        assert told == [text for text in whole if text not in (whole[3], whole[8])]


async def test_a_cursor_of_an_answer_without_a_look_goes_on_without(
    database: Database, provide: Starting, looking: Looking
) -> None:
    """What began as ranked ends as ranked, even where the model answers again."""
    provider = provide(partial(answering, Answer(status=503)))
    settings = looking(provider)
    async with Memory(database.server_dsn, Settings()) as plain:
        await append(plain, talk())
        whole = texts_of(await ask(plain, query(limit=100)))
    async with Memory(database.server_dsn, settings) as memory:
        first = await ask(memory, query(limit=4))
        provider.script = looked
        rest = await pages(memory, query(limit=4, cursor=first["next_cursor"]))
        assert [text for page in (first, *rest) for text in texts_of(page)] == whole


def test_an_endpoint_without_a_template_is_refused() -> None:
    """The error names the setting that is missing."""
    settings = replace(Settings(), second_look=SecondLookSettings(model="endpoint"))
    with pytest.raises(ConfigurationError, match=r"second_look\.template"):
        Memory("postgresql://nowhere", settings)


@pytest.fixture
def chatting(configured: Configuring) -> Looking:
    """Return settings under which a chat model looks at hits: `chatting(provider)`."""

    def settings(provider: Provider, *, llm: dict[str, Any] | None = None, **fields: Any) -> Settings:
        patient: dict[str, Any] = {"deadline_s": 60.0, "weight_percent": 200}
        look = SecondLookSettings(model="llm", **{**patient, **fields})
        return replace(Settings(), llm=configured(provider, walk=False, build=False, **(llm or {})), second_look=look)

    return settings


def shown(asked: Asked) -> list[dict[str, str]]:
    """Return the texts that the chat model was shown, each with its id."""
    texts: list[dict[str, str]] = unfenced(asked.texts[-1])["texts"]
    return texts


def ordering(asked: Asked) -> Answer:
    """Name the wanted text, and then one other."""
    texts = shown(asked)
    wanted = [text["id"] for text in texts if text["text"].endswith(WANTED)]
    return calling(asked, ("order", {"best": [*wanted, texts[0]["id"]]}))


@pytest.mark.parametrize("structure", ["tools", "json_schema"])
async def test_what_the_chat_model_names_comes_first(
    database: Database, provide: Starting, chatting: Looking, structure: str
) -> None:
    """In both ways of structure; an equal question asks once, and the audit keeps who asked, what was said and used."""
    provider = provide(ordering)
    async with Memory(database.server_dsn, Settings()) as plain:
        await append(plain, talk())
        before = texts_of(await ask(plain, query(limit=100)))
    async with Memory(database.server_dsn, chatting(provider, llm={"structure": structure})) as memory:
        found = await ask(memory, query(limit=100))
        assert texts_of(found)[0] == WANTED != before[0]
        assert texts_of(found)[1] == before[0]
        assert sorted(texts_of(found)) == sorted(before)
        assert await ask(memory, query(limit=100)) == found
    assert len(provider.asked) == 1
    assert provider.asked[0].headers["authorization"] == f"Bearer {KEY}"
    calls = await builds.rows(database, "SELECT workflow, mask, outcome, prompt, input_tokens FROM myria.llm_calls")
    assert [(row["workflow"], row["mask"], row["outcome"]) for row in calls] == [("look", ["ana", "ben"], "ok")]
    assert WANTED in calls[0]["prompt"]
    assert calls[0]["input_tokens"] == 100


async def test_only_what_the_caller_sees_is_shown_to_the_chat_model(
    database: Database, provide: Starting, chatting: Looking
) -> None:
    """What others say is not sent; credentials that a provider repeats are kept out of the audit."""
    provider = provide(lambda asked: calling(asked, ("order", {"best": ["h1"]}), content=f"I was given {KEY}"))
    async with Memory(database.server_dsn, chatting(provider)) as memory:
        await append(memory, talk())
        before = await ask(memory, query())
        await append(memory, talk(("a late train of zoe",), participants=("zoe",)))
        await append(memory, talk(("ana alone waits for a late train",), participants=("ana",)))
        assert await ask(memory, query()) == before
    sent = b"".join(asked.raw for asked in provider.asked)
    assert b"zoe" not in sent
    assert b"alone" not in sent
    kept = await builds.rows(database, "SELECT prompt, reply FROM myria.llm_calls")
    assert "I was given" in kept[0]["reply"]
    assert not any(KEY in row["prompt"] + row["reply"] for row in kept)


def named(*best: str) -> Callable[[Asked], Answer]:
    """Return a script that names these ids."""
    return lambda asked: calling(asked, ("order", {"best": list(best)}))


@pytest.mark.parametrize(
    "script",
    [
        named("h1", "h99"),
        named("h2", "h2"),
        named(TALK[3]),
        lambda asked: calling(asked, ("order", {"best": "h2"})),
        lambda asked: calling(asked, ("order", {"best": ["h2"], "delete": ["h1"]})),
        lambda asked: calling(asked, ("order", {"best": ["h3"]}), ("order", {"best": ["h4"]})),
        lambda asked: calling(asked, ("erase", {"best": ["h3"]})),
        lambda asked: Answer(body=completion(content="the best is h3")),
        lambda asked: Answer(body=completion(calls=[("order", '{"best": ["h3"')], finish="length")),
        lambda asked: Answer(status=500),
        lambda asked: Answer(hang=True),
        lambda asked: Answer(body=b"no json"),
    ],
)
async def test_what_the_chat_model_says_otherwise_leaves_the_order(
    database: Database, provide: Starting, chatting: Looking, script: Callable[[Asked], Answer]
) -> None:
    """Ids that it was not shown, one named twice, other tools, broken replies, failures and silence change no byte."""
    async with Memory(database.server_dsn, Settings()) as plain:
        await append(plain, talk())
        expected = await ask(plain, query(limit=100))
    provider = provide(script)
    hangs = script(_ASKED).hang
    settings = chatting(provider, llm={"retries": 0}, **({"deadline_s": 0.2} if hangs else {}))
    async with Memory(database.server_dsn, settings) as memory:
        assert await ask(memory, query(limit=100)) == expected
        assert memory.retrieval.look is not None
        assert memory.retrieval.look.figures() == {"looked": 0, "failed": 1}
    assert len(provider.asked) == 1


async def test_where_the_chat_model_finds_nothing_useful_the_order_stands(
    database: Database, provide: Starting, chatting: Looking
) -> None:
    """An empty list is an answer: all hits are alike to the model."""
    async with Memory(database.server_dsn, chatting(provide(named()))) as memory:
        await append(memory, talk())
        async with Memory(database.server_dsn, Settings()) as plain:
            assert texts_of(await ask(memory, query())) == texts_of(await ask(plain, query()))
        assert memory.retrieval.look is not None
        assert memory.retrieval.look.figures() == {"looked": 1, "failed": 0}


async def test_a_tenant_whose_tokens_are_used_up_is_answered_without_the_chat_model(
    database: Database, provide: Starting, chatting: Looking
) -> None:
    """The tokens of a day bound second looks as they bound builds and walks."""
    provider = provide(ordering)
    async with Memory(database.server_dsn, chatting(provider, llm={"tenant_tokens_per_day": 0})) as memory:
        await append(memory, talk())
        assert texts_of(await ask(memory, query()))
        assert provider.asked == []


def test_a_chat_model_without_a_template_is_refused() -> None:
    """The error names the setting that is missing."""
    settings = replace(Settings(), second_look=SecondLookSettings(model="llm"))
    with pytest.raises(ConfigurationError, match=r"llm\.template"):
        Memory("postgresql://nowhere", settings)


_ASKED = Asked(number=1, path="", headers={}, body={"tools": [{}]}, raw=b"")


def _events(node: dict[str, Any]) -> list[dict[str, Any]]:
    if node["kind"] in ("event", "event_ref"):
        return [node]
    return [found for child in node["children"] for found in _events(child)]
