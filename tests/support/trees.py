"""One scope's tree and events in memory: the planner's readers for tests, `verify` and programs without a database."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from myria.topics.model import LEAF, SUBJECT, Node, PlanEvent, TreeReader


class MemoryTree:
    """A `TreeReader` over nodes in memory; `opened`, `streamed` and `most_at_once` count what was asked for."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes = {node.rendering_id: node for node in nodes}
        self.calls = 0
        self.opened = 0
        self.most_at_once = 0
        self.streamed = 0

    def add(self, nodes: Iterable[Node]) -> None:
        """Keep more nodes."""
        self._nodes.update((node.rendering_id, node) for node in nodes)

    def under(self, rendering_id: bytes) -> list[Node]:
        """Return every node of the tree below and at a rendering, parents first."""
        found = []
        stack = [rendering_id]
        while stack:
            node = self._nodes[stack.pop()]
            found.append(node)
            stack.extend(reversed(node.children))
        return found

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order."""
        self.calls += 1
        self.opened += len(rendering_ids)
        self.most_at_once = max(self.most_at_once, len(rendering_ids))
        return [self._nodes[rendering_id] for rendering_id in rendering_ids]

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        """Return the node_ids of all leaves under (or at) a rendering, one after the other."""
        self.calls += 1
        leaves = [node.node_id for node in self.under(rendering_id) if node.node_type == LEAF]
        self.streamed += len(leaves)
        return b"".join(leaves)


class MemorySubjectNodes(MemoryTree):
    """The nodes of a `SubjectReader` in memory."""

    async def along(self, root: bytes, paths: Sequence[str]) -> list[Node]:
        """Return the root, the nodes of subjects that paths lead through, and those directly beneath them."""
        self.calls += 1
        found: list[Node] = []
        frontier = [self._nodes[root]]
        while frontier:
            found += frontier
            opened = [node for node in frontier if any(path.startswith(node.metadata["prefix"]) for path in paths)]
            children = [self._nodes[child] for node in opened for child in node.children]
            frontier = [child for child in children if child.node_type == SUBJECT]
        self.opened += len(found)
        self.most_at_once = max(self.most_at_once, len(found))
        return found


class RememberingReader:
    """A `TreeReader` that keeps the nodes it hands out, for validation of what was built beside them."""

    def __init__(self, reader: TreeReader) -> None:
        self._reader = reader
        self.seen: dict[bytes, Node] = {}

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order."""
        nodes = await self._reader.nodes(rendering_ids)
        self.seen.update((node.rendering_id, node) for node in nodes)
        return nodes

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        """Return the node_ids of all leaves under (or at) a rendering, one after the other."""
        return await self._reader.leaf_node_ids(rendering_id)


class MemoryEvents:
    """An `EventReader` over events in memory; `read` counts the events handed out."""

    def __init__(self, events: Iterable[PlanEvent]) -> None:
        self._events = sorted(events, key=lambda event: event.position)
        self._positions = [event.position for event in self._events]
        self.read = 0

    async def before(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly before a position, in ascending order."""
        end = bisect_left(self._positions, position)
        return self._handed(self._events[max(0, end - limit) : end])

    async def after(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly after a position, in ascending order."""
        start = bisect_right(self._positions, position)
        return self._handed(self._events[start : start + limit])

    def _handed(self, events: list[PlanEvent]) -> list[PlanEvent]:
        self.read += len(events)
        return events
