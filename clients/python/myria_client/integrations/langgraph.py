"""A store of LangGraph's long-term memory (`BaseStore`) on Myria: extra `langgraph`.

What graphs and LangMem's tools put into it is a memory: it survives restarts, is shared by all that use the same agent
name, and is searched by Myria's own ranking, so that no embeddings are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
)

from myria_client import AsyncClient, Client
from myria_client._flows import Flow
from myria_client._shelves import Shelf, Thing, said_of

T = TypeVar("T")
_RANKED = 1_000
"""Best things among which a filter chooses."""


class MyriaStore(BaseStore):
    """A store; give it the client that your graph's calls need: one that waits, one that is awaited, or both.

    `ttl` is not offered. A search with a filter and a query chooses among the best 1,000.

    Args:
        client: for `get`, `put`, `search` and their like.
        awaited: for `aget`, `aput`, `asearch` and their like.
        agent: as whom it keeps; stores of one agent hold the same.
    """

    supports_ttl = False

    def __init__(
        self, client: Client | None = None, *, awaited: AsyncClient | None = None, agent: str = "langgraph"
    ) -> None:
        self._client = client
        self._awaited = awaited
        self._shelf = Shelf(agent, "langgraph_item")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: what reads sees nothing of what is written beside it."""
        if self._client is None:
            raise TypeError("this store was made without a Client; use the asynchronous calls, or give it one")
        return self._client.run(self._run(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations, awaited; see `batch`."""
        if self._awaited is None:
            raise TypeError("this store was made without an AsyncClient: MyriaStore(awaited=AsyncClient(...))")
        return await self._awaited.run(self._run(list(ops)))

    def _run(self, ops: Sequence[Op]) -> Flow[list[Result]]:
        results: list[Result] = [None] * len(ops)
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        for place, op in enumerate(ops):
            if isinstance(op, GetOp):
                thing = yield from self._shelf.get(op.namespace, op.key)
                results[place] = None if thing is None else _item(thing)
            elif isinstance(op, SearchOp):
                results[place] = yield from self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[place] = yield from self._namespaces(op)
            elif isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
        for op in puts.values():
            if op.value is None:
                yield from self._shelf.delete(op.namespace, op.key)
            else:
                yield from self._shelf.put(op.namespace, op.key, op.value, _said(op))
        return results

    def _search(self, op: SearchOp) -> Flow[list[SearchItem]]:
        if op.query:
            most = _RANKED if op.filter else op.offset + op.limit
            things = yield from self._shelf.search(op.namespace_prefix, op.query, most)
        else:
            things = yield from self._shelf.each(op.namespace_prefix)
        wanted = [thing for thing in things if _matches(thing.value, op.filter or {})]
        return [_found(thing) for thing in wanted[op.offset : op.offset + op.limit]]

    def _namespaces(self, op: ListNamespacesOp) -> Flow[list[tuple[str, ...]]]:
        conditions = op.match_conditions or ()
        leading = [one.path for one in conditions if one.match_type == "prefix" and "*" not in one.path]
        above: tuple[str, ...] = max(leading, key=len, default=())
        things = yield from self._shelf.each(above)
        spaces = {thing.space for thing in things if all(_fits(one, thing.space) for one in conditions)}
        cut = sorted({space[: op.max_depth] for space in spaces})
        return cut[op.offset : op.offset + op.limit]


def _said(op: PutOp) -> str | None:
    if op.index is False or op.value is None:
        return None
    if op.index is None:
        return said_of(op.value)
    return "\n".join(text for path in op.index for text in get_text_at_path(op.value, tokenize_path(path)))


def _item(thing: Thing) -> Item:
    return Item(
        value=dict(thing.value),
        key=thing.key,
        namespace=thing.space,
        created_at=thing.created_at,
        updated_at=thing.updated_at,
    )


def _found(thing: Thing) -> SearchItem:
    return SearchItem(thing.space, thing.key, dict(thing.value), thing.created_at, thing.updated_at)


def _fits(condition: MatchCondition, space: tuple[str, ...]) -> bool:
    path = condition.path
    if len(space) < len(path):
        return False
    part = space[: len(path)] if condition.match_type == "prefix" else space[len(space) - len(path) :]
    return all(wanted in ("*", name) for wanted, name in zip(path, part, strict=True))


_COMPARED: dict[str, Any] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def _matches(value: Any, wanted: Any) -> bool:
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if any(name.startswith("$") for name in wanted):
        if unknown := [name for name in wanted if name not in _COMPARED]:
            raise ValueError(f"unsupported operator {unknown[0]}; known are {', '.join(_COMPARED)}")
        try:
            return all(_COMPARED[name](value, operand) for name, operand in wanted.items())
        except (TypeError, ValueError):
            return False  # what is no number is neither more nor less than one
    is_object = hasattr(value, "get")
    return is_object and all(_matches(value.get(name), part) for name, part in wanted.items())
