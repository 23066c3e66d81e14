"""Puts filings that come in the order of their paths into the nodes of a tree, and keeps only what is still open.

The tree is the one that `trie` assembles: what shares a prefix stands together, flat while it is few, else divided by
the first digit in which it differs. In the order of paths a prefix is whole as soon as another one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from myria.errors import InternalError
from myria.topics.subjects.trie import SubjectPiece, refuse_double, shared_digits

NodeMaker = Callable[[Sequence[SubjectPiece], str], SubjectPiece]
"""Makes the node of a prefix from its children."""


@dataclass(frozen=True, slots=True)
class StreamedPart:
    """What shares a prefix: all pieces where they are few, in the order of paths, else the children of its node."""

    pieces: list[SubjectPiece]
    size: int
    is_flat: bool
    prefix: str


@dataclass(slots=True)
class _OpenPrefix:
    """A prefix, of which more may come: what begins with each of its next digits."""

    digits: int
    parts: list[StreamedPart] = field(default_factory=list)
    size: int = 0


class SubjectStream:
    """Takes pieces in the order of their paths; at its end it has the children of the node above all of them.

    Args:
        make: makes a node of children; what lies flat is given as it came.
        most: how many pieces lie flat.
    """

    def __init__(self, make: NodeMaker, most: int) -> None:
        self._make = make
        self._most = most
        self._open: list[_OpenPrefix] = []
        self._last: SubjectPiece | None = None

    def add(self, piece: SubjectPiece) -> None:
        """Take the next piece.

        Raises:
            InternalError: it lies within the one before.
        """
        if self._last is not None:
            refuse_double(self._last, piece)
            shared = shared_digits(self._last.path, piece.path)
            part = _alone(self._last)
            if self._open and self._open[-1].digits > shared:
                part = self._closed(part, shared)
            if not self._open or self._open[-1].digits < shared:
                self._open.append(_OpenPrefix(shared))
            self._grow(self._open[-1], part)
        self._last = piece

    def end(self) -> StreamedPart:
        """Return what all pieces come to.

        Raises:
            InternalError: none came.
        """
        if self._last is None:
            raise InternalError("no piece came")
        return self._closed(_alone(self._last), -1)

    def _closed(self, part: StreamedPart, digits: int) -> StreamedPart:
        """Return `part` with all branches above it that begin after so many digits."""
        while self._open and self._open[-1].digits > digits:
            branch = self._open.pop()
            self._grow(branch, part)
            pieces = [piece for part in branch.parts for piece in part.pieces]
            prefix = pieces[0].path[: branch.digits]
            part = StreamedPart(pieces, branch.size, branch.size <= self._most, prefix)
        return part

    def _grow(self, branch: _OpenPrefix, part: StreamedPart) -> None:
        was_flat = branch.size <= self._most
        branch.parts.append(part)
        branch.size += part.size
        if branch.size > self._most:
            first = 0 if was_flat else -1
            branch.parts[first:] = map(self._whole, branch.parts[first:])

    def _whole(self, part: StreamedPart) -> StreamedPart:
        """Return a part as a single piece."""
        if len(part.pieces) == 1:
            return part
        return StreamedPart([self._make(part.pieces, part.prefix)], part.size, is_flat=False, prefix=part.prefix)


class FewPieces:
    """Takes pieces that all lie flat, in any order: they need no paths."""

    def __init__(self) -> None:
        self._pieces: list[SubjectPiece] = []

    def add(self, piece: SubjectPiece) -> None:
        """Take one more piece."""
        self._pieces.append(piece)

    def end(self) -> StreamedPart:
        """Return all of them.

        Raises:
            InternalError: one came twice.
        """
        pieces = self._pieces
        if len({piece.node.rendering_id for piece in pieces}) < len(pieces):
            raise InternalError("a leaf is filed twice under one key", pieces=len(pieces))
        return StreamedPart(pieces, len(pieces), is_flat=True, prefix="")


def _alone(piece: SubjectPiece) -> StreamedPart:
    return StreamedPart([piece], 1, is_flat=True, prefix=piece.path)
