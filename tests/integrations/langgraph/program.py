"""The store under LangGraph's own calls, beside its in-memory store; and the example, with a scripted model."""

# mypy: ignore-errors
# Checked against nothing: LangGraph is in an environment of its own.

import asyncio
import sys
import uuid

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.store.base import GetOp, PutOp
from langgraph.store.memory import InMemoryStore

from examples.integrations.langgraph_store import ask, build
from myria_client import AsyncClient, Client
from myria_client.integrations.langgraph import MyriaStore

URL = sys.argv[1]


class Scripted(FakeMessagesListChatModel):
    """Says what stands in its script, tools or not, and notes what it was told."""

    def bind_tools(self, _tools, **_):
        return self


def seen(items):
    return sorted((item.namespace, item.key, str(item.value)) for item in items)


def compare(ours, theirs):
    """Do the same in both stores, and find the same."""
    values = {"a": {"n": 1, "t": "tea", "deep": {"x": [1]}}, "b": {"n": 2.5, "t": "kiln"}, "c": {"t": None}}
    for store in (ours, theirs):
        for space in (("u", "ada"), ("u", "ben"), ("v",), ("u",)):
            for key, value in values.items():
                store.put(space, key, value)
        store.put(("u", "ada"), "a", {"n": 3, "t": "coffee"})
        store.delete(("v",), "a")
        store.delete(("v",), "none")
        store.put(("v",), "b", None)
        store.put(("v",), "a", {"again": True})
    for space in (("u", "ada"), ("v",)):
        for key in ("a", "b", "c", "d"):
            one, other = ours.get(space, key), theirs.get(space, key)
            assert (one and one.value) == (other and other.value), (space, key)
    for prefix in ((), ("u",), ("u", "ada"), ("w",)):
        for wanted in (
            None,
            {"t": "kiln"},
            {"n": 1},
            {"t": {"$ne": "tea"}},
            {"deep": {"x": [1]}},
        ):
            assert seen(ours.search(prefix, filter=wanted, limit=50)) == seen(
                theirs.search(prefix, filter=wanted, limit=50)
            ), (prefix, wanted)
    bounded = {"n": {"$gte": 2.5, "$lt": 10}}
    assert {item.value["n"] for item in ours.search(("u", "ada"), filter=bounded)} == {2.5, 3}
    assert len(ours.search((), limit=3)) == 3
    assert len(ours.search((), limit=50, offset=8)) == 3
    for named in (
        {},
        {"prefix": ("u",)},
        {"suffix": ("ada",)},
        {"prefix": ("*", "ben")},
        {"max_depth": 1},
        {"limit": 1, "offset": 1},
    ):
        assert ours.list_namespaces(**named) == theirs.list_namespaces(**named), named
    assert ours.get(("w",), "a") is None
    results = ours.batch([PutOp(("b",), "k", {"v": 1}), GetOp(("b",), "k"), PutOp(("b",), "k", {"v": 2})])
    assert results == [None, None, None]
    item = ours.get(("b",), "k")
    assert item.value == {"v": 2}
    ours.put(("b",), "k", {"v": 3})
    later = ours.get(("b",), "k")
    assert later.created_at == item.created_at < later.updated_at


def search(ours):
    """What is most about a question comes first; what is not indexed is not searched."""
    for key, text in (("tea", "Ada prefers green tea"), ("kiln", "The kiln is hot"), ("cat", "The cat sleeps")):
        ours.put(("s",), key, {"text": text, "kind": "fact"})
    ours.put(("s",), "secret", {"text": "Ada prefers tea in secret"}, index=False)
    ours.put(("s",), "part", {"text": "nothing", "title": "About the moon"}, index=["title"])
    assert ours.search(("s",), query="What does Ada like to drink, tea?", limit=1)[0].key == "tea"
    assert ours.search(("s",), query="the moon", limit=1)[0].key == "part"
    found = ours.search(("s",), query="Ada tea", limit=10, filter={"kind": "fact"})
    assert {item.key for item in found} == {"tea", "kiln", "cat"}
    assert "secret" not in {item.key for item in ours.search(("s",), query="secret", limit=10)}
    assert ours.get(("s",), "secret").value["text"].endswith("secret")


async def awaited():
    """The asynchronous calls; two that put one key at once leave one thing."""
    async with AsyncClient(URL) as client:
        store = MyriaStore(awaited=client, agent="awaited")
        await asyncio.gather(*(store.aput(("x",), "k", {"n": n}) for n in range(8)))
        assert len(await store.asearch(("x",), limit=50)) == 1
        assert (await store.aget(("x",), "k")).value["n"] in range(8)
        try:
            store.get(("x",), "k")
        except TypeError:
            pass
        else:
            raise AssertionError("a store without a Client answered")


def example(client):
    """The model keeps a fact with LangMem's tool, and in another conversation finds it."""

    def calling(name, **arguments):
        return AIMessage(content="", tool_calls=[{"name": name, "args": arguments, "id": uuid.uuid4().hex}])

    said = [
        calling("manage_memory", content="Ada moved to Porto.", action="create"),
        AIMessage(content="Noted."),
    ]
    assert ask(build(Scripted(responses=said), client), "ada", "I moved to Porto.") == "Noted."
    found = [calling("search_memory", query="Where does Ada live?"), AIMessage(content="In Porto.")]
    agent = build(Scripted(responses=found), client)
    state = agent.invoke(
        {"messages": [{"role": "user", "content": "Where do I live?"}]}, {"configurable": {"user": "ada"}}
    )
    told = next(message for message in state["messages"] if message.type == "tool")
    assert "Ada moved to Porto." in str(told.content)
    assert [memory.content for memory in client.recall("Porto", limit=1)] == ["Ada moved to Porto."]


with Client(URL) as client:
    compare(MyriaStore(client), InMemoryStore())
    search(MyriaStore(client, agent="searching"))
    example(client)
asyncio.run(awaited())
print("sound")
