"""What recall finds of notes: each log of data/notes.toml is kept note by note, and asked as an agent asks.

The notes go through `Notes.remember` and the questions through `Recall.find`, on a PostgreSQL that is started for this
and thrown away. A note is kept at the time its log says, and the questions are asked an hour after the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster import Cluster
from benchmarks.retrieval_logs import Log
from myria.masks import Masks
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.questions import RecallQuery
from myria.settings import Settings

_DATABASE = "bench_retrieval"
_TENANT = "default"
_HOUR_US = 3_600 * 10**6


async def recalled(logs: Sequence[Log], limit: int) -> list[list[tuple[int, ...]]]:
    """Return, for every question of every log, the numbers of the notes that are recalled, best first."""
    with TemporaryDirectory() as folder:
        async with Cluster(Path(folder)) as cluster:
            dsns = await cluster.create(_DATABASE)
            async with Memory(dsns.server, Settings()) as memory:
                return [await _of_log(memory, log, limit) for log in logs]


async def _of_log(memory: Memory, log: Log, limit: int) -> list[tuple[int, ...]]:
    notes = await memory.notes(_TENANT)
    who: tuple[str, ...] = ()
    now = 0
    numbers: dict[str, int] = {}
    for number, event in log.events.items():
        who, now = tuple(sorted(event["participants"])), _microseconds(event)
        content = event["payload"]["text"]
        numbers[content] = number
        await notes.remember(_TENANT, who, Draft(content=content), contract="004", speaker="bot", now=now)
    found: list[tuple[int, ...]] = []
    for question in log.questions:
        query = RecallQuery(masks=Masks.containing(who), now=now + _HOUR_US, text=question.text, page_size=limit)
        fragments = await memory.recall.find(_TENANT, query)
        found.append(tuple(numbers[fragment.text] for fragment in fragments if fragment.text in numbers))
    return found


def _microseconds(event: Mapping[str, str]) -> int:
    return int(datetime.fromisoformat(event["timestamp"]).timestamp()) * 10**6
