"""The tree of a scope's subjects: a radix tree of what leaves are filed under, so that filing one changes one path.

What a leaf is filed under is written as a path of hexadecimal digits: the key, the leaf's other keys, each with an end,
then its time and its content key. A subject is the set of all leaves under one key, in the order of time where they lie
flat. So a large subject divides by what else its leaves are about, and at last by time. Subjects are gathered in the
same way by their keys, as in the index of a book.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Protocol

from myria.errors import InternalError
from myria.settings.planner import PlannerSettings
from myria.topics import calendar
from myria.topics.identity import subject_node
from myria.topics.model import Node, NodeReader, Participants
from myria.topics.radix import LEAVES, UNITS, RadixAssembly, UnreadLeaf, in_order, leads_through
from myria.topics.subjects.holders import Holders
from myria.topics.subjects.words import describe_division, describe_index, describe_subject

_CACHED_KEYS = 8_192
"""Keys whose digits are cached: each stands in several paths."""

LEAVES_AT_ONCE = 500
"""Leaves that are read by one statement."""

_PATHS_AT_ONCE = 512
"""Changed paths whose nodes are read at once; more are followed level by level."""

FILED_TWICE = "a leaf is filed twice under one key"

_END = "00"
"""Digits that end a key in a path: no key holds a NUL character. A second one begins the time."""


class SubjectReader(NodeReader, Protocol):
    """The old tree of subjects of one scope, its leaves, and who holds which key."""

    async def along(self, root: bytes, paths: Sequence[str]) -> list[Node]:
        """Return the nodes of subjects to read at once: those that some paths lead through, and their children.

        This only saves reads: fewer nodes may be returned, or none.
        """
        ...

    async def holders(self, keys: Sequence[str]) -> Mapping[str, Holders]:
        """Return the stored records of these keys; keys without one are left out."""
        ...


@dataclass(frozen=True, slots=True)
class SubjectPiece:
    """A node of the tree with the prefix of all its paths, or a leaf under one of its keys with its whole path.

    `others` are the other keys that the leaf is filed under, best first; None for a node.
    """

    path: str
    node: Node | UnreadLeaf
    others: tuple[str, ...] | None = None

    @classmethod
    def filed(cls, leaf: Node | UnreadLeaf, key: str, keys: Iterable[str]) -> SubjectPiece:
        """Return the piece of a leaf under `key`; `keys` are all that it is filed under."""
        others = tuple([other for other in keys if other != key])
        return cls(path_of(key, others, leaf.key_timestamp, leaf.key_digest), leaf, others)


@lru_cache(maxsize=_CACHED_KEYS)
def subject_prefix(key: str) -> str:
    """Return the digits that all paths of a subject begin with."""
    return key.encode("utf-8", "surrogatepass").hex() + _END


def keys_of(prefix: str) -> tuple[str, ...]:
    """Return the keys that a prefix holds whole: none above a subject, its own, then those that divide it."""
    *ended, _ = bytes.fromhex(prefix[: len(prefix) & ~1]).split(b"\0")
    return tuple(key.decode("utf-8", "surrogatepass") for key in takewhile(bool, ended))


async def assemble_subjects(
    old_root: bytes | None,
    removed: Iterable[str],
    ended: AbstractSet[str],
    added: Sequence[SubjectPiece],
    reader: SubjectReader,
    *,
    participants: Participants,
    settings: PlannerSettings,
) -> tuple[Node | None, list[Node]]:
    """Return the root over the old tree's filings without those removed and with those added, and the new nodes.

    Args:
        old_root: rendering id of the old tree's root; None for no tree.
        removed: paths of filings that the old tree has and the new one must not have.
        ended: keys of subjects that are removed with all their filings.
        added: new filings; for a subject that the old tree does not have, all of its filings.
        reader: the old tree and its leaves.
        participants: the scope.
        settings: the planner's settings.

    Returns:
        The new root (None without subjects), and the nodes that the old tree did not have, children before parents.

    Raises:
        InternalError: what is removed is not in the old tree, or a subject would have a single leaf.
    """
    assembly = SubjectAssembly(reader, participants, settings)
    gone = set(removed)
    prefixes = {subject_prefix(key) for key in ended}
    changed = sorted([*gone, *prefixes, *(piece.path for piece in added)])
    old = [] if old_root is None else await assembly.old(reader, old_root, changed)
    pieces = []
    for piece in await assembly.open(old, changed, LEAVES, prefixes):
        if piece.path in gone:
            gone.remove(piece.path)
        else:
            pieces.append(piece)
    if gone:
        raise InternalError("a filing to be removed is not in the tree of subjects", filings=len(gone))
    pieces = in_order([*pieces, *added], FILED_TWICE)
    if not pieces:
        return None, []
    top = await assembly.grown([await assembly.subject(part) for part in _by_subject(pieces)], UNITS)
    (root,) = await assembly.nodes_of([top])
    return root, assembly.new


class SubjectAssembly(RadixAssembly[SubjectPiece]):
    """Makes the nodes of subjects, and those above them."""

    def __init__(self, reader: NodeReader, participants: Participants, settings: PlannerSettings) -> None:
        super().__init__(settings.max_children)
        self._reader = reader
        self._loaded: dict[bytes, Node] = {}
        self._participants = participants

    async def old(self, reader: SubjectReader, root: bytes, changed: Sequence[str]) -> list[SubjectPiece]:
        """Return the root of the old tree; if few paths changed, read ahead the nodes that they lead through."""
        if len(changed) <= _PATHS_AT_ONCE:
            await self._read_along(reader, root, changed)
        (node,) = await self._nodes([root])
        return [SubjectPiece(node.metadata["prefix"], node)]

    async def _read_along(self, reader: SubjectReader, old_root: bytes, changed: Sequence[str]) -> None:
        """Keep in memory the nodes that changed paths lead through, and the leaves directly beneath these."""
        found = {node.rendering_id: node for node in await reader.along(old_root, changed)}
        opened = [node for node in found.values() if leads_through(node.metadata["prefix"], changed)]
        leaves = sorted({child for node in opened for child in node.children if child not in found})
        if leaves:
            found.update(zip(leaves, await reader.nodes(leaves), strict=True))
        self._loaded = found

    async def _nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return nodes in this order, reading those that are not in memory."""
        nodes = self._loaded
        missing = [rendering_id for rendering_id in rendering_ids if rendering_id not in nodes]
        if missing:
            nodes = nodes | dict(zip(missing, await self._reader.nodes(missing), strict=True))
        return [nodes[rendering_id] for rendering_id in rendering_ids]

    async def nodes_of(self, pieces: Sequence[SubjectPiece]) -> list[Node]:
        """Return the nodes of pieces, in order; leaves that are unread are read."""
        unread = [piece.node.rendering_id for piece in pieces if isinstance(piece.node, UnreadLeaf)]
        read = dict(zip(unread, await self._nodes(unread), strict=True)) if unread else {}
        return [read[piece.node.rendering_id] if isinstance(piece.node, UnreadLeaf) else piece.node for piece in pieces]

    async def subject(self, pieces: list[SubjectPiece]) -> SubjectPiece:
        """Return the subject made of some pieces: all that is filed under its key, in the order of paths.

        A single piece that is a subject or a group of subjects already is returned as it is.

        Raises:
            InternalError: only one leaf is filed under the key.
        """
        if len(pieces) == 1 and (pieces[0].node.is_unit or not keys_of(pieces[0].path)) and not pieces[0].node.is_leaf:
            return pieces[0]
        prefix = subject_prefix(keys_of(pieces[0].path)[0])
        while len(pieces) == 1 and not pieces[0].node.is_leaf:
            # Only one division is left: the subject takes its children as its own.
            pieces = sorted(await self.below(pieces), key=lambda piece: piece.path)
        if len(pieces) == 1:
            raise InternalError("a subject of a single leaf", key=keys_of(prefix)[0])
        return await self.parent(await self.children(pieces, LEAVES), prefix)

    async def below(self, pieces: Sequence[SubjectPiece]) -> list[SubjectPiece]:
        """Return the pieces directly under some nodes, and note these as opened."""
        parents = await self.nodes_of(pieces)
        child_ids = sorted({child for node in parents for child in node.children})
        nodes = dict(zip(child_ids, await self._nodes(child_ids), strict=True))
        child_pieces: list[SubjectPiece] = []
        for piece, node in zip(pieces, parents, strict=True):
            self.opened.add(node.rendering_id)
            key = next(iter(keys_of(piece.path)), "")
            filed = node.metadata["filed"] or [None] * len(node.children)
            for rendering_id, others in zip(node.children, filed, strict=True):
                child = nodes[rendering_id]
                if others is None:
                    child_pieces.append(SubjectPiece(child.metadata["prefix"], child))
                else:
                    path = path_of(key, others, child.key_timestamp, child.key_digest)
                    child_pieces.append(SubjectPiece(path, child, tuple(others)))
        return child_pieces

    async def parent(self, children: Sequence[SubjectPiece], prefix: str) -> SubjectPiece:
        """Return the node of a prefix over its children, described from them."""
        keys = keys_of(prefix)
        nodes = await self.nodes_of(children)
        is_subject = bool(keys) and prefix == subject_prefix(keys[0])
        if not keys:
            description = describe_index(nodes)
        elif is_subject:
            description = describe_subject(keys[0], nodes)
        else:
            description = describe_division(keys, nodes)
        filed = [list(child.others) if child.others is not None else None for child in children]
        place = {"prefix": prefix, "filed": filed if any(others is not None for others in filed) else []}
        node = subject_node(
            self._participants,
            replace(description, metadata={**description.metadata, **place}),
            prefix=prefix,
            children=nodes,
            is_subject=is_subject,
        )
        self.nodes[node.rendering_id] = node
        return SubjectPiece(prefix, node)


def path_of(key: str, others: Sequence[str], key_timestamp: int, key_digest: bytes) -> str:
    """Return the path of a leaf under one of its keys, as hexadecimal digits."""
    of_keys = "".join(map(subject_prefix, (key, *others)))
    return f"{of_keys}{_END}{calendar.digits(key_timestamp)}{key_digest.hex()}"


def _by_subject(pieces: Sequence[SubjectPiece]) -> list[list[SubjectPiece]]:
    """Return pieces in lists of one subject each; an old group of subjects is a list of itself."""
    return [list(part) for _, part in groupby(pieces, key=lambda piece: keys_of(piece.path)[:1] or piece.path)]
