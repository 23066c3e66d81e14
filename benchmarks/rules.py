"""The rules of the ranking, each kept only where other conversations want it than the one that it is measured on.

A rule is a signal of `benchmarks.ablation`. For every conversation of LoCoMo and every chat of `messy_chats` those
rules are chosen without which the others are worse off (mean of R@5, R@10 and MRR, each conversation as much as any
other, and a small share of the facts that changed), and the one left out is asked with these alone. What it finds so,
beside what it finds with all rules, says how much of the figures is owed to rules that know their conversations.

    python -m benchmarks.rules --data DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import changed_facts, locomo_offline, messy_chats
from benchmarks.ablation import SIGNALS, patched

SHARE_OF_CHANGED = 0.1
DEV = ("dev", "second dev", "third dev")
ALL = "nothing taken out"

Figures = tuple[float, float, float]
"""R@5, R@10 and MRR."""


def main() -> None:
    """Print a row for each conversation, and the means."""
    parser = argparse.ArgumentParser(description="Rules of the ranking, cross-validated over conversations.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    sets = _Sets(parser.parse_args().data)
    worth: dict[str, float] = {}
    figures: dict[str, dict[str, Figures]] = {}
    for name in SIGNALS:
        with _without([name]):
            figures[name] = sets.figures()
            worth[name] = sets.changed()
    whole = figures[ALL]
    print("| measured on | all rules | rules that the others want | taken out |\n|---|---|---|---|")
    means: dict[bool, list[tuple[Figures, Figures]]] = {False: [], True: []}
    for talk, found in whole.items():
        others = [one for one in whole if one != talk]
        unwanted = [
            name
            for name in SIGNALS
            if name != ALL
            and _mean(figures[name], others) + SHARE_OF_CHANGED * worth[name]
            > _mean(whole, others) + SHARE_OF_CHANGED * worth[ALL]
        ]
        with _without(unwanted):
            chosen = sets.figures([talk])[talk]
        means[talk in sets.chats].append((found, chosen))
        print(f"| {talk} | {_shown(found)} | {_shown(chosen)} | {', '.join(unwanted) or 'none'} |", flush=True)
    for name, rows in (("LoCoMo, by conversation", means[False]), ("chats", means[True])):
        columns = [tuple(sum(row[of][at] for row in rows) / len(rows) for at in range(3)) for of in (0, 1)]
        print(f"| {name} | {_shown(columns[0])} | {_shown(columns[1])} | |")


class _Sets:
    """All questions, by conversation."""

    def __init__(self, folder: Path) -> None:
        self._memory = locomo_offline.load(folder)
        self._facts = [talk for talk in changed_facts.conversations() if talk.half in DEV]
        self.chats = {chat.name: chat for chat in messy_chats.chats()}

    def figures(self, talks: Sequence[str] | None = None) -> dict[str, Figures]:
        """Return what is found of some conversations, or of all."""
        rows: dict[str, list[Figures]] = {}
        for one in self._memory.questions:
            if talks is None or one.conversation in talks:
                at_5, at_10, _, rank = locomo_offline.scores(self._memory, one)
                rows.setdefault(one.conversation, []).append((at_5, at_10, rank))
        found = {talk: _means(of) for talk, of in rows.items()}
        for name, chat in self.chats.items():
            if talks is None or name in talks:
                found[name] = messy_chats.figures([(one, messy_chats.places(chat, one)) for one in chat.questions])
        return found

    def changed(self) -> float:
        """Return how often the newer statement of a fact that changed stands first."""
        found = [(fact, *changed_facts.places(talk, fact)) for talk in self._facts for fact in talk.facts]
        return changed_facts.figures(found)["now: newer above the older"]


@contextmanager
def _without(names: Sequence[str]) -> Iterator[None]:
    """Take several signals out at once; of values that two of them set the last one counts."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patched(*SIGNALS[name]))
        yield


def _means(rows: Sequence[Figures]) -> Figures:
    at_5, at_10, rank = (sum(row[at] for row in rows) / len(rows) for at in range(3))
    return at_5, at_10, rank


def _mean(figures: Mapping[str, Figures], talks: Sequence[str]) -> float:
    return sum(sum(figures[talk]) / 3 for talk in talks) / len(talks)


def _shown(figures: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in figures)


if __name__ == "__main__":
    main()
