"""The weights of the ranking, each chosen on other conversations than those that it is measured on.

For every conversation of LoCoMo the weights are searched one by one, from those in use, on the four others and on the
facts that changed (`dev` halves, with a small share): a value is taken where it raises the mean of R@5, R@10 and MRR.
What the fifth conversation gives with them says whether choosing weights so is worth anything elsewhere; the weights
searched on all conversations are printed last.

    python -m benchmarks.weights --data DIR [--processes N] [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks import changed_facts, locomo_offline
from benchmarks.ablation import patched
from myria.retrieval import ranking

Value = int | tuple[int, ...]
Weights = Mapping[str, Value]
Figures = tuple[float, ...]
"""R@5, R@10, MRR and R@10 of multi-hop questions."""

STEPS = (50, 80, 125, 200)
"""Percent of a weight that are tried instead of it."""
SEARCHED = (
    "_K1", "_B", "_PREVIOUS", "_ANSWERS", "_DATED_ANSWERS", "_NEXT", "_FAR", "_MANY", "_LEAF", "_UNIT", "_RELATED",
    "_MEMBER", "_WIDER", "_INSTEAD_OF_MANY", "_COVERED", "_EXACT", "_SPEAKER", "_SAYS_WHEN", "_NAMES", "_HAS_NUMBER",
    "_ASKS", "_ONLY_ASKS", "_SAYS_NOTHING", "_PERIOD", "_AROUND_DAY",
)  # fmt: skip
OF_ONE = frozenset(
    {
        "_INSTEAD_OF_MANY",
        "_SPEAKER",
        "_SAYS_WHEN",
        "_NAMES",
        "_HAS_NUMBER",
        "_ASKS",
        "_ONLY_ASKS",
        "_SAYS_NOTHING",
        "_PERIOD",
        "_AROUND_DAY",
    }
)
"""Factors in percent: what they differ from 100 by is the weight."""
LEAST_GAIN = 0.0004
SHARE_OF_CHANGED = 0.1
DEV = ("dev", "second dev", "third dev")


def main() -> None:
    """Print the figures in use, those of weights chosen elsewhere, and the weights that all conversations choose."""
    parser = argparse.ArgumentParser(description="Weights of the ranking, cross-validated over conversations.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="how often each weight is looked at")
    options = parser.parse_args()
    talks = sorted({one.conversation for one in _memory(options.data).questions})
    search = partial(_searched, options.data, rounds=options.rounds)
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        *chosen, of_all = pool.map(search, [frozenset(talks) - {talk} for talk in talks] + [frozenset(talks)])
    print("| measured on | weights in use | chosen on the others | chosen on all |\n|---|---|---|---|")
    for talk, weights in zip(talks, chosen, strict=True):
        found = [_found(options.data, given) for given in ({}, weights, of_all)]
        print(f"| {talk} | " + " | ".join(_shown(_figures(one, {talk})) for one in found) + " |", flush=True)
    columns: list[list[Weights]] = [[{}] * len(talks), [*chosen], [of_all] * len(talks)]
    wholes = [
        _figures({talk: _found(options.data, given)[talk] for talk, given in zip(talks, of, strict=True)}, set(talks))
        for of in columns
    ]
    print("| all | " + " | ".join(map(_shown, wholes)) + " |")
    for name in SEARCHED:
        print(f"{name:12} in use {getattr(ranking, name)}, all choose {of_all.get(name, 'the same')}, folds", end=" ")
        print(", ".join(str(weights.get(name, "same")) for weights in chosen))
    for name, weights in [("in use", {}), *zip(talks, chosen, strict=True), ("all", of_all)]:
        print(f"facts that changed, newer above the older, {name}: {_changed(weights, changed_facts.HALVES):.3f}")


@cache
def _memory(folder: Path) -> locomo_offline.Memory:
    return locomo_offline.load(folder)


@cache
def _talks() -> tuple[changed_facts.Conversation, ...]:
    return tuple(changed_facts.conversations())


def _searched(folder: Path, talks: frozenset[str], *, rounds: int) -> dict[str, Value]:
    """Return the weights, other than those in use, that some conversations choose."""
    weights: dict[str, Value] = {}
    best = _worth(folder, weights, talks)
    for _ in range(rounds):
        before = dict(weights)
        for name in SEARCHED:
            for value in _around(name, weights.get(name, getattr(ranking, name))):
                tried = {**weights, name: value}
                if (worth := _worth(folder, tried, talks)) > best + LEAST_GAIN:
                    weights, best = tried, worth
        if weights == before:
            break
    return weights


def _around(name: str, value: Value) -> Iterator[Value]:
    if isinstance(value, tuple):
        for percent in STEPS:
            yield tuple(one * percent // 100 for one in value)
        return
    middle = 100 if name in OF_ONE else 0
    for percent in STEPS:
        yield middle + (value - middle) * percent // 100


def _worth(folder: Path, weights: Weights, talks: frozenset[str]) -> float:
    figures = _figures(_found(folder, weights, talks), talks)
    return sum(figures[:3]) / 3 + SHARE_OF_CHANGED * _changed(weights, DEV)


def _found(folder: Path, weights: Weights, talks: frozenset[str] | None = None) -> dict[str, list[Figures]]:
    """Return what each question of some conversations gives: R@5, R@10, reciprocal rank, 1 where it is multi-hop."""
    memory = _memory(folder)
    found: dict[str, list[Figures]] = {}
    with patched(ranking, weights):
        for one in memory.questions:
            if talks is None or one.conversation in talks:
                at_5, at_10, _, rank = locomo_offline.scores(memory, one)
                found.setdefault(one.conversation, []).append((at_5, at_10, rank, one.category == "multi-hop"))
    return found


def _figures(found: Mapping[str, Sequence[Figures]], talks: set[str] | frozenset[str]) -> Figures:
    rows = [row for talk in talks for row in found[talk]]
    hops = [row for row in rows if row[3]]
    return (*(sum(row[at] for row in rows) / len(rows) for at in range(3)), sum(row[1] for row in hops) / len(hops))


def _changed(weights: Weights, halves: Sequence[str]) -> float:
    with patched(ranking, weights):
        found = [
            (fact, *changed_facts.places(talk, fact))
            for talk in _talks()
            if talk.half in halves
            for fact in talk.facts
            if fact.asks == "now"
        ]
    return changed_facts.figures(found)["now: newer above the older"]


def _shown(figures: Figures) -> str:
    return " ".join(f"{value:.3f}" for value in figures)


if __name__ == "__main__":
    main()
