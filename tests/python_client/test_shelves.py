"""Things with a key, and conversations, of which integrations with agent frameworks are made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from myria_client import AsyncClient, Invalid, NewMemory
from myria_client._shelves import Shelf, said_of
from myria_client._transcripts import Transcript
from tests.python_client.conftest import call
from tests.server.wire import Served
from tests.support.patience import PATIENCE_S


async def test_a_thing_is_there_once(served: Served) -> None:
    """However many put one key at once, also after it was taken away, and beside keys that look alike."""
    shelf = Shelf("store", "thing")
    async with AsyncClient(f"http://127.0.0.1:{served.port}", timeout_s=PATIENCE_S) as client:
        for _ in range(2):
            await asyncio.gather(*(client.run(shelf.put(("a", "b"), "k", {"n": n}, f"number {n}")) for n in range(6)))
            assert [thing.key for thing in await client.run(shelf.each(()))] == ["k"]
            assert await client.run(shelf.delete(("a", "b"), "k")) is True
            assert await client.run(shelf.delete(("a", "b"), "k")) is False
        for space, key in ((("a", "b"), "c"), (("a",), "b/c"), (("a", "b", "c"), ""), ((), "a"), (("ä ö", "/"), "\n")):
            await client.run(shelf.put(space, key, {"space": list(space)}, None))
            thing = await client.run(shelf.get(space, key))
            assert thing is not None
            assert (thing.space, thing.key, thing.value) == (space, key, {"space": list(space)})
        assert {thing.space for thing in await client.run(shelf.each(("a",)))} == {("a",), ("a", "b"), ("a", "b", "c")}
        assert await client.run(Shelf("other", "thing").each(())) == []
        assert await client.run(shelf.search((), "space", 10)) == []
        with pytest.raises(Invalid, match="at most 40"):
            await client.run(shelf.put(("x",) * 41, "k", {}, None))


async def test_a_search_gives_the_best_and_then_the_newest(client: Any) -> None:
    """As stores of vectors do: as many as are asked for, where there are so many."""
    shelf = Shelf("store", "thing")
    for key, said in (("tea", "Ada drinks tea"), ("kiln", "The kiln is hot"), ("cat", "The cat sleeps")):
        await call(client.run, shelf.put(("s",), key, {"said": said}, said))
    await call(client.run, shelf.put(("s",), "hidden", {"said": "tea"}, None))
    await call(client.remember, "Somebody else's tea")
    found = await call(client.run, shelf.search(("s",), "tea", 3))
    assert (found[0].key, len(found)) == ("tea", 3)
    assert len(await call(client.run, shelf.search(("s",), "tea", 1))) == 1
    assert {thing.key for thing in await call(client.run, shelf.search(("s",), "zebra", 5))} == {"tea", "kiln", "cat"}


async def test_a_conversation_keeps_its_order(client: Any) -> None:
    """Equal items are all kept; the newest are given in the order in which they came."""
    transcript = Transcript("sdk", "any name at all", lambda item: str(item["content"]))
    items = [{"role": "user", "content": f"line {number % 2}"} for number in range(103)]
    await call(client.run, transcript.add(items))
    await call(client.memories.keep, NewMemory(agent_id="sdk", content="no item of it"))
    assert await call(client.run, transcript.last(None)) == items
    assert await call(client.run, transcript.last(2)) == items[-2:]
    assert await call(client.run, transcript.pop()) == items[-1]
    assert await call(client.run, transcript.last(1)) == items[-2:-1]
    assert await call(client.run, Transcript("sdk", "another", str).last(None)) == []


def test_what_a_value_says() -> None:
    """Its texts and numbers, in order."""
    assert said_of({"a": "x", "b": [1, {"c": "y"}, True, None], "d": 2.5}) == "x\n1\ny\n2.5"
