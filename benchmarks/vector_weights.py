"""What vectors are worth where their weights were not chosen: each conversation is measured with those of the others.

For every conversation of LoCoMo, the weight and the threshold of meaning (`myria.retrieval.ranking`,
`myria.retrieval.nearness`) that give the others the best mean R@10 are applied to it, so that no conversation is
measured with what it helped to choose.

    python -m benchmarks.vector_weights --data DIR
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from benchmarks import locomo_offline
from benchmarks.ablation import patched
from benchmarks.locomo_offline import GoldQuestion
from myria.retrieval import nearness, ranking

WEIGHTS = (10, 15, 20, 25, 30, 40)
"""Tried of `ranking._NEAR`."""
THRESHOLDS = (50, 100, 150, 200)
"""Tried of `nearness._FROM`."""

Choice = tuple[int, int]
Row = tuple[GoldQuestion, tuple[float, ...]]


def main() -> None:
    """Print the figures of words alone, of the weights in use, and of those chosen on other conversations."""
    parser = argparse.ArgumentParser(description="Weights of vectors, cross-validated over conversations.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    folder = parser.parse_args().data
    memory = locomo_offline.load(folder)
    meanings = locomo_offline.meanings_of(folder, memory)
    print("| | R@5 | R@10 | R@20 | MRR | multi-hop R@10 |\n|---|---:|---:|---:|---:|---:|")
    print(_line("words alone", [(one, locomo_offline.scores(memory, one)) for one in memory.questions]))
    print(_line("weights in use", [(one, locomo_offline.scores(memory, one, meanings)) for one in memory.questions]))
    found: dict[Choice, list[Row]] = {}
    for weight, least in product(WEIGHTS, THRESHOLDS):
        with patched(ranking, {"_NEAR": weight}), patched(nearness, {"_FROM": least}):
            found[weight, least] = [(one, locomo_offline.scores(memory, one, meanings)) for one in memory.questions]
        print(_line(f"weight {weight}, from {least}", found[weight, least]), flush=True)
    chosen = {talk: _best_without(found, talk) for talk in sorted({one.conversation for one in memory.questions})}
    rows = [row for talk, choice in chosen.items() for row in found[choice] if row[0].conversation == talk]
    print(_line("chosen on the other conversations", rows))
    for (weight, least), times in Counter(chosen.values()).most_common():
        print(f"chosen {times} of {len(chosen)} times: weight {weight}, from {least}")


def _best_without(found: Mapping[Choice, Sequence[Row]], talk: str) -> Choice:
    def others(choice: Choice) -> float:
        return sum(row[1] for one, row in found[choice] if one.conversation != talk)

    return max(found, key=others)


def _line(name: str, rows: Sequence[Row]) -> str:
    means = [sum(row[at] for _, row in rows) / len(rows) for at in range(4)]
    hops = [row[1] for one, row in rows if one.category == "multi-hop"]
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in (*means, sum(hops) / max(1, len(hops)))) + " |"


if __name__ == "__main__":
    main()
