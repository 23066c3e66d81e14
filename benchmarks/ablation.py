"""What each signal of the ranking gives: the same questions with one signal taken out at a time.

LoCoMo's questions, both sets of facts that changed and both of chats as people type them, in memory (see
locomo_offline, changed_facts, changed_states and messy_chats). A row is the ranking without one signal; its figures
beside those of the first row say what that signal is worth, and the last column in how many of the conversations R@10
falls without it, so that no signal lives on one conversation alone.

    python -m benchmarks.ablation --data DIR
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import changed_facts, changed_states, locomo_offline, messy_chats
from myria.index.corpus import Timeline
from myria.retrieval import question, ranking, states, successors

_NO_ANSWERS = {"_ANSWERS": (0, 0), "_DATED_ANSWERS": (0, 0)}
SIGNALS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "nothing taken out": (ranking, {}),
    "words of neighbours in time": (ranking, {"_PREVIOUS": (0, 0), "_NEXT": (0, 0)} | _NO_ANSWERS),
    "the answer after a question": (ranking, _NO_ANSWERS),
    "the statement before a question": (ranking, {"_ANSWERS": (45, 0)}),
    "short messages farther off": (ranking, {"_FAR": (0, 0, 0, 0)}),
    "questions for many things": (ranking, {"_MANY": 100, "_INSTEAD_OF_MANY": 100}),
    "words of the leaf": (ranking, {"_LEAF": 0}),
    "words of the unit": (ranking, {"_UNIT": 0}),
    "words together": (ranking, {"_COVERED": 0}),
    "related words": (ranking, {"_RELATED": 0}),
    "members of a kind": (ranking, {"_MEMBER": 0}),
    "wider words": (ranking, {"_WIDER": 0}),
    "words of a state": (question, {"states": lambda term: ()}),
    "the named speaker": (ranking, {"_SPEAKER": 100}),
    "texts that say when": (ranking, {"_SAYS_WHEN": 100}),
    "texts that name something": (ranking, {"_NAMES": 100}),
    "texts that hold a number": (ranking, {"_HAS_NUMBER": 100}),
    "texts that only ask": (ranking, {"_ONLY_ASKS": 85}),
    "texts that ask": (ranking, {"_ASKS": 100, "_ONLY_ASKS": 100}),
    "texts that say nothing": (ranking, {"_SAYS_NOTHING": 100}),
    "texts of few words": (ranking, {"_FEW_WORDS": (100,) * 6}),
    "numbers for how many": (ranking, {"_HAS_COUNT": 100}),
    "words akin": (question, {"akin": lambda term: ()}),
    "words cut short": (ranking, {"clipped": lambda term: ()}),
    "words misspelt": (ranking, {"misspelling_ids": lambda term: ()}),
    "times the question names": (ranking, {"_PERIOD": 100, "_AROUND_DAY": 100}),
    "later hits nearly as good": (successors, {"_RIVALS": 1_000_000}),
    "small signs of a later state": (states, {"_LIKELY": 1_000_000}),
    "what was changed later": (question, {"_asks_for": lambda text: None}),
}


def main() -> None:
    """Print a row for each signal."""
    parser = argparse.ArgumentParser(description="What each signal of the ranking gives.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    memory = locomo_offline.load(parser.parse_args().data)
    talks = list(changed_facts.conversations())
    chats = messy_chats.chats()
    often_changed = list(changed_states.conversations())
    print(
        "| without | R@5 | R@10 | MRR | multi-hop R@10 | changed: newer first | up to three times: newest first "
        "| chats: R@10 | second chats: R@10 | third chats: R@10 | conversations that lose |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    whole: dict[str, float] = {}
    for name, (module, changes) in SIGNALS.items():
        with patched(module, changes):
            rows = [(one, locomo_offline.scores(memory, one)) for one in memory.questions]
            found = [(fact, *changed_facts.places(talk, fact)) for talk in talks for fact in talk.facts]
            later = [(fact, changed_states.places(talk, fact)) for talk in often_changed for fact in talk.facts]
            typed = [
                [
                    (one, messy_chats.places(chat, one))
                    for chat in chats
                    if chat.set == name_of_set
                    for one in chat.questions
                ]
                for name_of_set in messy_chats.SETS
            ]
        by_talk = _by_conversation(rows)
        whole = whole or by_talk
        means = [sum(row[at] for _, row in rows) / len(rows) for at in (0, 1, 3)]
        hops = [row[1] for one, row in rows if one.category == "multi-hop"]
        newer = changed_facts.figures(found)["now: newer above the older"]
        newest = changed_states.figures(later)["now: newest above all older"]
        values = (*means, sum(hops) / max(1, len(hops)), newer, newest, *(messy_chats.figures(one)[1] for one in typed))
        shown = " | ".join(f"{value:.3f}" for value in values)
        losing = sum(by_talk[talk] < whole[talk] for talk in whole)
        print(f"| {name} | {shown} | {losing} of {len(whole)} |", flush=True)


@contextmanager
def patched(module: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Give names of a module other values for a while, in which no timeline keeps what it derived."""
    with patch.dict(vars(module), values), patch.object(Timeline, "derived", lambda timeline, make: make(timeline)):
        yield


def _by_conversation(rows: list[tuple[locomo_offline.GoldQuestion, tuple[float, ...]]]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for one, row in rows:
        found[one.conversation].append(row[1])
    return {talk: sum(values) / len(values) for talk, values in found.items()}


if __name__ == "__main__":
    main()
