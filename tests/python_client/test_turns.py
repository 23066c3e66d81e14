"""The Python client against a real server: message lists of two styles, retries, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_client import AsyncClient, Busy, Client, NotAllowed, Refused, Retry, Unreachable
from tests.server.conftest import memory, patient_looks, served  # noqa: F401 - fixtures
from tests.server.wire import Served, serving
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import free_port

ROOT = Path(__file__).resolve().parents[2]
ONCE = Retry(times=0)


@pytest.fixture
def settings() -> Settings:
    """The face is on."""
    return Settings(turns=TurnsSettings(enabled=True))


@pytest.fixture
def url(served: Served) -> str:  # noqa: F811
    return f"http://127.0.0.1:{served.port}"


@asynccontextmanager
async def client_of(url: str, **more: Any) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, timeout_s=PATIENCE_S, **more) as client:
        yield client


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(messages: list[Any]) -> list[str]:
    return [message["content"] for message in messages]


async def test_what_was_said_comes_back(url: str) -> None:
    """Recalled facts come as data before the messages, earlier items where the caller has none; nothing comes twice."""
    async with client_of(url) as client:
        chat = client.turns.session("s", project="p", user_id=None)
        messages = [{"role": "system", "content": "Be brief."}, user("My name is Ada.")]
        first = await chat.openai(messages)
        assert first.messages == messages
        assert first.messages[1] is messages[1]
        for _ in range(2):  # a repeat is none
            await first.keep("Hello Ada.")
        alone = await chat.openai([user("Who am I?")])
        assert [message["role"] for message in alone.messages] == ["system", "user", "user", "assistant", "user"]
        assert "untrusted reference" in alone.messages[0]["content"]
        assert '"value":"ada"' in alone.messages[1]["content"]
        assert texts(alone.messages[2:]) == ["My name is Ada.", "Hello Ada.", "Who am I?"]
        assert len(alone.fact_ids) == 1
        whole = [*messages, {"role": "assistant", "content": "Hello Ada."}, user("Who am I?")]
        told = await chat.openai(whole)
        assert texts(told.messages)[0] == "Be brief."
        assert told.messages[-3:] == whole[1:]
        assert texts(told.messages).count("My name is Ada.") == 1
        await told.keep({"role": "assistant", "content": "Ada."})
        last = await client.turns.session("s", project="p").before("And now?")
        assert [item["content"][0]["text"] for item in last.input_items[2:]] == [
            "My name is Ada.",
            "Hello Ada.",
            "Who am I?",
            "Ada.",
            "And now?",
        ]


async def test_calls_of_tools_in_both_styles(url: str) -> None:
    """A call and its answer are kept, stay side by side in the caller's own list, and are told in a later prompt."""
    openai = [
        user("What is the weather in Porto?"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"in":"Porto"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    anthropic = [
        user("What is the weather in Porto?"),
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"in": "Porto"}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]}],
        },
    ]
    async with client_of(url) as client:
        for style, messages in (("openai", openai), ("anthropic", anthropic)):
            chat = client.turns.session(f"tools-{style}")
            begin: Any = getattr(chat, style)
            first = await begin(messages[:1])
            await first.keep(messages[1])
            second = await begin(messages)
            assert second.messages[-3:] == messages
            await second.keep("It rains.")
            later = texts((await begin([user("And tomorrow?")])).messages)
            assert later[-5:] == [
                "What is the weather in Porto?",
                f'[called weather: {"{"}"in":{" " if style == "anthropic" else ""}"Porto"{"}"}]',
                "[the tool answered: rain]",
                "It rains.",
                "And tomorrow?",
            ]


async def test_what_memory_says_goes_beside_anthropic_s_messages(url: str) -> None:
    """The policy joins the system prompt, be it a text or blocks; the first message is always the user's."""
    async with client_of(url) as client:
        chat = client.turns.session("claude")
        first = await chat.anthropic([user("I prefer tea.")], system="Be brief.")
        assert (first.system, first.messages) == ("Be brief.", [user("I prefer tea.")])
        reply = SimpleNamespace(
            model_dump=lambda **_: {"role": "assistant", "content": [{"type": "text", "text": "Noted."}], "id": "m"}
        )
        await first.keep(reply)
        text = await chat.anthropic([user("What do I drink?")], system="Be brief.")
        blocks = await chat.anthropic([user("What do I drink?")], system=[{"type": "text", "text": "Be brief."}])
        assert text.system.startswith("Be brief.\n\nMemory policy")
        assert [block["type"] for block in blocks.system] == ["text", "text"]
        assert [message["role"] for message in text.messages] == ["user", "user", "assistant", "user"]
        assert "<memory_reference>" in text.messages[0]["content"]


async def test_a_long_conversation_gives_way(url: str) -> None:
    """Where the model takes little, earlier messages give way to a summary; what is said now stays whole, and last."""
    history = [
        message for n in range(20) for message in (user(f"{n} kiln " * 40), {"role": "assistant", "content": f"ok {n}"})
    ]
    async with client_of(url) as client:
        chat = client.turns.session("long")
        await (await chat.openai([user("I prefer tea.")])).keep("ok")
        turn = await chat.openai([*history, user("And now?")], max_input_tok=2_000)
        assert len(turn.messages) < len(history)
        assert any("items are left out" in text for text in texts(turn.messages))
        assert turn.messages[-1] == user("And now?")
        assert turn.tokens < 1_600


async def test_images_and_odd_messages(url: str) -> None:
    """An image in its address is noted, not sent; empty messages and unknown parts harm nothing."""
    picture = {
        "role": "user",
        "content": [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "data:" + "A" * 200_000}},
        ],
    }
    sound = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA"}}]}
    async with client_of(url, retry=ONCE) as client:
        chat = client.turns.session("odd")
        turn = await chat.openai([sound, picture])
        assert turn.messages == [sound, picture]
        await turn.keep("Nice", "", {"role": "assistant", "content": []})
        with pytest.raises(TypeError, match="mapping"):
            await chat.openai([17])
        with pytest.raises(Refused, match="INVALID_ARGUMENT"):
            await chat.openai([])
        with pytest.raises(Refused, match="surrogate"):
            await chat.openai([user("\ud800")])


async def test_refusals_are_told_by_their_codes(database: Database, memory: Memory, settings: Settings) -> None:  # noqa: F811
    """A wrong key is refused at once; where memory is not required the turn goes on without it."""
    guarded = Settings(turns=settings.turns, auth=AuthSettings(mode="keys"))
    async with access_store(database) as store, serving(memory, guarded) as served:  # noqa: F811
        key = await make_key(store, "ana", faces=("turns",))
        address = f"http://127.0.0.1:{served.port}"
        async with client_of(address, key=key + "x") as client:
            with pytest.raises(Refused) as refused:
                await client.turns.session("s").before("hi")
            assert (refused.value.code, refused.value.status) == ("PERMISSION_DENIED", 401)
            turn = await client.turns.session("s").openai([user("hi")], required=False)
            assert (turn.messages, type(turn.error)) == ([user("hi")], NotAllowed)
            await turn.keep("hello")
        async with client_of(address, key=key) as client:
            assert (await client.turns.session("s").before("hi")).recall_fact_ids == []


async def test_a_call_is_tried_again(url: str) -> None:
    """While the connection breaks or the server is busy, and not where it refuses; so many times."""
    seen: list[int] = []

    def answering(*answers: int | None) -> Callable[[httpx.Request], httpx.Response]:
        left = iter(answers)
        seen.clear()

        def answer(request: httpx.Request) -> httpx.Response:
            status = next(left)
            seen.append(status or 0)
            if status is None:
                raise httpx.ConnectError("away", request=request)
            if status == 200:
                return httpx.Response(200, json={"ok": True})
            code = "RESOURCE_BUSY" if status >= 500 else "INVALID_ARGUMENT"
            body = {"code": code, "message": "m", "retryable": status >= 500}
            return httpx.Response(status, json=body, headers={"retry-after": "0"})

        return answer

    quick = Retry(times=2, first_pause_s=0.001)

    async def keep(*answers: int | None) -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answering(*answers))) as http:
            await AsyncClient(url, http=http, retry=quick).turns.session("s").after("t", "hi", "hello")

    await keep(None, 503, 200)
    with pytest.raises(Unreachable):
        await keep(None, None, None)
    with pytest.raises(Busy, match="RESOURCE_BUSY"):
        await keep(503, 503, 503)
    with pytest.raises(Refused, match="INVALID_ARGUMENT"):
        await keep(400)
    assert seen == [400]


async def test_the_client_that_waits_does_the_same(url: str) -> None:
    """From threads, with one client for all of them."""

    def talk(client: Client, number: int) -> list[Any]:
        chat = client.turns.session(f"thread-{number}")
        turn = chat.openai([user(f"My name is N{chr(97 + number)}.")])
        turn.keep("Hello.")
        chat.after("same", f"I like {number}", [{"role": "assistant", "content": "ok"}])
        chat.after("same", "again", "ok")
        return chat.anthropic([user("Who am I?")]).messages

    with Client(url, timeout_s=PATIENCE_S) as client:
        told = await asyncio.gather(*(asyncio.to_thread(talk, client, number) for number in range(4)))
    for number, messages in enumerate(told):
        assert f'"value":"n{chr(97 + number)}"' in messages[0]["content"]
        assert texts(messages[1:]) == [
            f"My name is N{chr(97 + number)}.",
            "Hello.",
            f"I like {number}",
            "ok",
            "Who am I?",
        ]


def test_nobody_there() -> None:
    """What no answer comes to is said as such, once the tries are used up."""
    with Client(f"http://127.0.0.1:{free_port()}", retry=Retry(times=1, first_pause_s=0.001)) as client:
        with pytest.raises(Unreachable):
            client.turns.session("s").before("hi")
        turn = client.turns.session("s").openai([user("hi")], required=False)
        turn.keep("hello")
        assert isinstance(turn.error, Unreachable)
