"""What all imports of other systems share: reading lines, storing many items at once, counting and refusing them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from myria import errors
from myria.log.jsontext import decode
from myria.log.transfer import ImportCount, RefusedLine

Item = TypeVar("Item")
Kept = TypeVar("Kept")

AT_ONCE = 32
"""Items that are stored concurrently, so that they share commits."""

BOM = b"\xef\xbb\xbf"


@dataclass(slots=True, kw_only=True)
class Importing:
    """The state of a running import, and its result at the end.

    `left_out` counts, by reason, records that are no memories; `remarks` counts notes about records that were stored.
    `on_refused` is called for each record that was refused, with its number in the export.
    """

    on_refused: Callable[[RefusedLine], None]
    on_progress: Callable[[ImportCount], None] = lambda _: None
    count: ImportCount = field(default_factory=ImportCount)
    left_out: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)

    def refuse(self, number: int, error: errors.MyriaError, where: str = "") -> None:
        """Count and report a record that is not stored."""
        self.count.refused += 1
        message = f"{where}: {error.message}" if where else error.message
        self.on_refused(RefusedLine(line=number, code=error.code, message=message))

    def documents(self, lines: Iterable[bytes], *, longest: int | None = None) -> Iterator[tuple[int, Any]]:
        """Parse lines of JSON and yield each document with its line number; count blank lines, refuse bad ones.

        Args:
            longest: most bytes of a line; None if the reader of `lines` has bounded them already.
        """
        for number, text in enumerate(lines, 1):
            self.count.lines += 1
            self.count.bytes_read += len(text)
            text = text.removeprefix(BOM) if number == 1 else text
            if not text.strip():
                self.count.blank += 1
                continue
            try:
                if longest is not None and len(text) > longest:
                    raise errors.BodyTooLarge(
                        f"the line is longer than {longest} bytes; write fewer rows on each", limit=longest
                    )
                document = decode(text)
            except errors.MyriaError as error:
                self.refuse(number, error)
                continue
            yield number, document

    async def keep(
        self,
        items: Iterable[tuple[int, Item | errors.MyriaError]],
        keep: Callable[[Item], Awaitable[Kept | None]],
        *,
        at_once: int = AT_ONCE,
    ) -> AsyncIterator[list[Kept]]:
        """Call `keep` with each item, `at_once` at a time; yield, batch by batch, what it returned besides None.

        A refused item is reported, and the others go on. An item whose note was forgotten since an earlier import
        (NoteNotFound) counts as already there, and stays forgotten.

        Args:
            items: each with its number, which a refusal reports; an error stands for an item that cannot be read.
        """

        def readable() -> Iterator[tuple[int, Item]]:
            for number, item in items:
                if isinstance(item, errors.MyriaError):
                    self.refuse(number, item)
                else:
                    yield number, item

        async def keep_one(number: int, item: Item) -> Kept | None:
            try:
                return await keep(item)
            except errors.NoteNotFound:
                self.count.already_there += 1
            except (errors.InputError, errors.ConflictError) as error:
                self.refuse(number, error)
            return None

        waiting = readable()
        while batch := list(islice(waiting, at_once)):
            kept = await asyncio.gather(*(keep_one(number, item) for number, item in batch))
            yield [answer for answer in kept if answer is not None]
            self.on_progress(self.count)
