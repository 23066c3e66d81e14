"""The session under the SDK's own runner, with its scripted model; and its calls beside the SDK's SQLite session."""

# mypy: ignore-errors
# Checked against nothing: the SDK is in an environment of its own.

import asyncio
import sys

from agents import SQLiteSession
from agents.memory import Session
from agents.testing import ScriptedModel
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from examples.integrations.openai_session import ask
from myria_client import AsyncClient
from myria_client.integrations.openai_agents import MyriaSession

URL = sys.argv[1]


def saying(text):
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])]


async def compare(client):
    """Both sessions hold the same, in the same order, whatever is done with them."""
    ours, theirs = MyriaSession("one/two three", client), SQLiteSession("one/two three")
    assert isinstance(ours, Session)
    items = [{"role": "user" if n % 2 else "assistant", "content": f"line {n % 3}"} for n in range(230)]
    items.insert(5, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"})
    for session in (ours, theirs):
        await session.add_items(items[:1])
        await session.add_items(items[1:])
        await session.add_items([])
    for limit in (None, 1, 3, 0, 500):
        assert await ours.get_items(limit) == await theirs.get_items(limit), limit
    for _ in range(3):
        assert await ours.pop_item() == await theirs.pop_item()
    assert await ours.get_items() == await theirs.get_items()
    assert await MyriaSession("another", client).get_items() == []
    await ours.clear_session()
    assert await ours.get_items() == []
    assert await ours.pop_item() is None


async def example(client):
    """A later run is given what was said; another agent recalls it."""
    model = ScriptedModel([saying("Hello Ada."), saying("Ada.")])
    assert await ask(model, client, "ada", "My name is Ada.") == "Hello Ada."
    assert await ask(model, client, "ada", "Who am I?") == "Ada."
    given = str(model.last_call.input)
    assert given.index("My name is Ada.") < given.index("Hello Ada.") < given.index("Who am I?")
    assert (await client.recall("Who has the name Ada?", limit=1))[0].content == "My name is Ada."


async def main():
    async with AsyncClient(URL) as client:
        await example(client)
        await compare(client)


asyncio.run(main())
print("sound")
