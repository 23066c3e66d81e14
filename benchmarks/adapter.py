"""Lines of an evaluation data set as arguments of append_event.

Data sets label each message with facts that the memory must not get, such as the conversation it was taken from: those
fields are dropped here, everything else is passed on unchanged. Streaming: memory does not grow with the file.

    python -m benchmarks.adapter DATA/events.jsonl > events-for-import.jsonl
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson

LABELS = frozenset({"conversation", "session"})
"""Fields of the data sets that are not part of an event."""

T = TypeVar("T")


def event_arguments(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of append_event for each JSON line, in order.

    Raises:
        orjson.JSONDecodeError: a line is not JSON.
    """
    for line in lines:
        if line.strip():
            event: dict[str, Any] = orjson.loads(line)
            yield {name: value for name, value in event.items() if name not in LABELS}


def event_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each line as one that `myria import` takes."""
    for arguments in event_arguments(lines):
        yield orjson.dumps(arguments, option=orjson.OPT_APPEND_NEWLINE)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch


def main() -> None:
    """Write the events of the files named on the command line to standard output."""
    for name in sys.argv[1:]:
        with Path(name).open("rb") as source:
            sys.stdout.buffer.writelines(event_lines(source))


if __name__ == "__main__":
    main()
