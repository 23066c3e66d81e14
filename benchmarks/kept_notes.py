"""What recall finds of notes: logs of data/ are kept note by note, and asked as an agent asks.

The notes go through `Notes.remember` and the questions through `Recall.find`, on a PostgreSQL that is started for this
and thrown away. A note is kept at the time its log says, and the questions are asked an hour after the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster import TENANT, Cluster
from benchmarks.retrieval_logs import Event, Log
from myria.db.database import Database
from myria.index.embeddings.keeping import vector_keeper
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.questions import RecallQuery
from myria.settings import EmbeddingsSettings, Settings

Found = list[tuple[int, ...]]
"""For every question of a log the numbers of the notes that are recalled, best first."""

_DATABASE = "bench_retrieval"
_HOUR_US = 3_600 * 10**6
_MOST_EVENTS = 100_000
_WITH_VECTORS = Settings(embeddings=EmbeddingsSettings(model="local", question_deadline_s=60.0))
"""No question is answered by its words alone because the machine is busy."""


async def recalled(logs: Sequence[Log], limit: int, *, vectors: bool = False) -> tuple[list[Found], list[Found]]:
    """Keep logs and ask them; return what is found of each by words alone and with vectors of the local model.

    Args:
        vectors: left out, the second is empty.
    """
    with TemporaryDirectory() as folder:
        async with Cluster(Path(folder)) as cluster:
            dsns = await cluster.create(_DATABASE)
            async with Memory(dsns.server, Settings()) as memory:
                numbers = [await keep(memory, log) for log in logs]
                by_words = [await ask(memory, *each, limit) for each in zip(logs, numbers, strict=True)]
            if not vectors:
                return by_words, []
            async with Database(dsns.owner) as database, vector_keeper(database, _WITH_VECTORS) as keeper:
                if keeper is None:
                    raise RuntimeError("nothing computes vectors")
                await keeper.run(TENANT, _MOST_EVENTS)
            async with Memory(dsns.server, _WITH_VECTORS) as memory:
                return by_words, [await ask(memory, *each, limit) for each in zip(logs, numbers, strict=True)]


async def keep(memory: Memory, log: Log) -> dict[str, int]:
    """Remember what each event of a log says, at its time; return the events' numbers by what is kept, redacted."""
    numbers = {}
    for number, event in log.events.items():
        draft = Draft(content=event["payload"]["text"])
        kept = await memory.notes.remember(
            TENANT, _participants(event), draft, contract="memento", speaker="bot", now=_microseconds(event)
        )
        numbers[kept.note.content] = number
    return numbers


async def ask(memory: Memory, log: Log, numbers: Mapping[str, int], limit: int) -> Found:
    """Recall by the questions of a log that was kept."""
    *_, last = log.events.values()
    masks = Masks.containing(_participants(last))
    found: Found = []
    for question in log.questions:
        query = RecallQuery(masks=masks, now=_microseconds(last) + _HOUR_US, text=question.text, page_size=limit)
        fragments = await memory.recall.find(TENANT, query)
        found.append(tuple(numbers[fragment.text] for fragment in fragments if fragment.text in numbers))
    return found


def _participants(event: Event) -> tuple[str, ...]:
    return tuple(sorted(event["participants"]))


def _microseconds(event: Mapping[str, str]) -> int:
    return int(datetime.fromisoformat(event["timestamp"]).timestamp()) * 10**6
