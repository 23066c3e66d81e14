"""What a second look at the best hits gives: by token vectors of the local model, or by an endpoint that re-ranks.

No cross-encoder comes with its weights in a package. A late interaction does: for each word piece of the question the
most like one of a hit, summed (MaxSim, Khattab and Zaharia 2020), with the vectors that the model of the extra
`embeddings` gives word pieces. It was not trained for that. Everything else is the code that answers questions.

The data (see `benchmarks.locomo_offline`) is not part of this project:

    python -m benchmarks.second_look --data DIR [--embeddings] [--weights 5,10,20,50]
    python -m benchmarks.second_look --data DIR --rerank http://127.0.0.1:8080/v1 --template FILE [--form texts]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.locomo_offline import CUTS, GoldQuestion, Memory, load, meanings_of, planned_events
from myria.embeddings.minilm import MOST_PIECES, MiniLM
from myria.embeddings.model import installed_weights
from myria.embeddings.wordpiece import numbers
from myria.masks import Mask
from myria.retrieval.plan import meaning
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank
from myria.second_look.endpoint import RerankEndpoint
from myria.second_look.fusing import order, quantised
from myria.settings import SecondLookSettings
from myria.tokens import token_counter
from myria.vault import Secrets

HITS = 50
_LONGEST_S = 600.0
_MULTI_HOP = "multi-hop"

Look = Callable[[str, str, Sequence[str]], list[float]]
"""How relevant texts are to a question, which is also given without the names in it."""


class LateInteraction:
    """The sum over the question's word pieces of the most like one of a text, by the local model's vectors."""

    def __init__(self) -> None:
        weights = installed_weights()
        assert weights is not None, "needs 'myria[embeddings]'"
        self._model = MiniLM(weights)
        self._known: dict[str, npt.NDArray[np.float32]] = {}

    def __call__(self, _question: str, without_names: str, texts: Sequence[str]) -> list[float]:
        """Return how relevant texts are; the names of people are left out, as for vectors of whole questions."""
        asked = self._vectors(without_names)
        return [float((asked @ self._vectors(text).T).max(axis=1).sum()) if text else 0.0 for text in texts]

    def _vectors(self, text: str) -> npt.NDArray[np.float32]:
        if text not in self._known:
            found = self._model.pieces(numbers(text, MOST_PIECES))
            found = found[1:-1] if len(found) > 2 else found
            self._known[text] = found / np.linalg.norm(found, axis=1, keepdims=True)
        return self._known[text]


def endpoint(options: argparse.Namespace) -> Look:
    """Return what an endpoint that re-ranks says."""
    settings = SecondLookSettings(
        model="endpoint", template=options.template, base_url=options.rerank, form=options.form
    )
    asked = RerankEndpoint.configured(settings, os.environ, Secrets({}))

    async def once(question: str, texts: Sequence[str]) -> list[float]:
        try:
            return await asked.relevance(question, texts, within_s=_LONGEST_S)
        finally:
            await asked.close()

    return lambda question, _, texts: asyncio.run(once(question, texts))


def main() -> None:
    """Print the figures for each weight, and what the second look costs."""
    parser = argparse.ArgumentParser(description="What a second look at the best hits gives.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    parser.add_argument("--embeddings", action="store_true", help="over hits found with vectors of the local model")
    parser.add_argument("--weights", default="5,10,20,50,100", help="percent of a score for a standard deviation")
    parser.add_argument("--rerank", metavar="URL", help="where /rerank is, instead of the local model")
    parser.add_argument("--template", help="the template of its requests")
    parser.add_argument("--form", default="documents", choices=("documents", "texts"))
    options = parser.parse_args()
    memory = load(options.data)
    said = {
        event.event_seq: event.text if options.rerank is None or not event.speaker else f"{event.speaker}: {event.text}"
        for events in planned_events(options.data).values()
        for event in events
    }
    found = _found(memory, options)
    look: Look = LateInteraction() if options.rerank is None else endpoint(options)
    counter = token_counter()
    begin, cpu = time.perf_counter(), time.process_time()
    looked: list[list[int]] = []
    tokens = 0
    for question, without_names, hits in found:
        texts = [said[seq] for seq, _ in hits]
        looked.append(quantised(look(question.text, without_names, texts)) if hits else [])
    cpu, elapsed = time.process_time() - cpu, time.perf_counter() - begin
    for question, _, hits in found:
        tokens += counter.count(question.text) + sum(counter.count(said[seq]) for seq, _ in hits)
    print(
        f"{'weight':>8}" + "".join(f"  R@{cut:<4}" for cut in CUTS) + "  MRR    multi-hop R@10   conversations up/down"
    )
    before: dict[str, float] = {}
    for weight in (0, *map(int, options.weights.split(","))):
        groups: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for (question, _, hits), steps in zip(found, looked, strict=True):
            places = order([score for _, score in hits], steps, weight)
            row = _figures(question, [hits[place][0] for place in places])
            for group in ("all", question.category, f"in {question.conversation}"):
                groups[group].append(row)
        means = {name: [sum(column) / len(rows) for column in zip(*rows, strict=True)] for name, rows in groups.items()}
        by_conversation = {name: mean[1] for name, mean in means.items() if name.startswith("in ")}
        before = before or by_conversation
        moves = [by_conversation[name] - before[name] for name in before]
        shown = "".join(f"  {mean:.3f} " for mean in means["all"])
        changed = f"{sum(move > 0 for move in moves)}/{sum(move < 0 for move in moves)}"
        print(f"{weight:>8}{shown}  {means[_MULTI_HOP][1]:.3f}            {changed}")
    count = len(found)
    print(
        f"{elapsed / count * 1000:.0f} ms, {cpu / count * 1000:.0f} ms of CPU here, {tokens // count} tokens a question"
    )


def _found(memory: Memory, options: argparse.Namespace) -> list[tuple[GoldQuestion, str, list[tuple[int, int]]]]:
    """Return each question, the same without names, and its best hits with their scores."""
    meanings = meanings_of(options.data, memory) if options.embeddings else None
    found: list[Any] = []
    for question in memory.questions:
        seen = [corpus for corpus in memory.corpora if Mask(question.participants).sees(corpus.participants)]
        asked = Question(text=question.text)
        near = None if meanings is None else meanings.near(asked, seen)
        hits = rank(asked, seen, limit=HITS, near=near).hits
        found.append((question, meaning(asked, seen) or question.text, [(hit.event_seq, hit.score) for hit in hits]))
    return found


def _figures(question: GoldQuestion, seqs: Sequence[int]) -> tuple[float, ...]:
    is_gold = [seq in question.gold for seq in seqs[: max(CUTS)]]
    first = is_gold.index(True) + 1 if True in is_gold else 0
    return (*(sum(is_gold[:cut]) / len(question.gold) for cut in CUTS), 1 / first if first else 0.0)


if __name__ == "__main__":
    main()
