"""The frame of every import beside that of Myria's own events: what was read, kept and refused, many at a time."""

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
"""Records that are kept at the same time: they share commits."""

BOM = b"\xef\xbb\xbf"


@dataclass(slots=True, kw_only=True)
class Importing:
    """One import under way, and at its end what became of it.

    `left_out` counts by reason what is no memory; `remarks`, what else to know. `on_refused` is called with each record
    that was not stored, by its number in the export.
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
        """Yield what lines of JSON say, each with its number; blank ones are counted, and bad ones refused.

        Args:
            longest: most bytes of a line, where the reader of `lines` does not bound them.
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
        """Keep what items say, `at_once` at a time; yield what `keep` returned of each batch.

        A refusal of one is reported, and the others go on. What was forgotten since an earlier import stays so.

        Args:
            items: each with its number, by which a refusal names it; or why it cannot be read.
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
