"""How well questions find what people typed in chats: short turns, bursts of one speaker, typos, slang, emoji.

Each chat of data/messy_chats.toml is one conversation, and all chats of the other people are strangers to it. The three
sets were written at different times. `friends` and, after one measurement, `band` may be looked at while rules are
written; the others are only measured. It needs no database: the ranking runs on blocks of the real planner, as in
locomo_offline.

    python -m benchmarks.messy_chats [--misses] [--tail] [--embeddings | --endpoint URL --template FILE]
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chat_lines import written
from benchmarks.locomo_offline import Meanings, add_model_options, chosen_model, fresh, indexed
from myria.index import Corpus
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank

DATA = Path(__file__).parent / "data" / "messy_chats.toml"
LOOKED_AT = ("friends", "band")
LIMIT = 10
SETS = ("first", "second", "third")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question and the numbers of the messages that answer it."""

    text: str
    gold: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """What some people typed, indexed, and the questions about it."""

    name: str
    corpus: Corpus
    questions: tuple[Asked, ...]
    texts: Mapping[int, str]
    set: str
    """One of SETS."""


def chats(*, tail: bool = False) -> list[Chat]:
    """Return every chat; with `tail` nothing is planned and all messages are in the fresh tail."""
    return [_chat(chat, tail=tail) for chat in tomllib.loads(DATA.read_text(encoding="utf-8"))["chats"]]


def places(chat: Chat, question: Asked, meanings: Meanings | None = None) -> list[int]:
    """Return the places of a question's messages among the first ten hits, from 1, ascending."""
    corpora = (chat.corpus,)
    asked = Question(text=question.text)
    near = None if meanings is None else meanings.near(asked, corpora)
    hits = rank(asked, corpora, limit=LIMIT, near=near).hits
    return [at for at, hit in enumerate(hits, 1) if hit.event_seq in question.gold]


def figures(found: Sequence[tuple[Asked, Sequence[int]]]) -> tuple[float, float, float]:
    """Return R@5, R@10 and the mean reciprocal rank of the first message."""
    count = max(1, len(found))
    return (
        sum(sum(at <= 5 for at in at_hits) / len(question.gold) for question, at_hits in found) / count,
        sum(len(at_hits) / len(question.gold) for question, at_hits in found) / count,
        sum(1 / at_hits[0] for _, at_hits in found if at_hits) / count,
    )


def main() -> None:
    """Print the figures of each chat and of every set."""
    parser = argparse.ArgumentParser(description="Questions about chats as people type them.")
    parser.add_argument("--misses", action="store_true", help=f"list what is not in the first five, of {LOOKED_AT}")
    parser.add_argument("--tail", action="store_true", help="plan nothing: everything in the fresh tail")
    add_model_options(parser)
    options = parser.parse_args()
    model = chosen_model(options)
    made = chats(tail=options.tail)
    meanings = None if model is None else Meanings([(chat.corpus, chat.texts) for chat in made], model)
    print(f"{'':12}{'n':>4}   R@5   R@10  MRR")
    everything: dict[str, list[tuple[Asked, Sequence[int]]]] = {name: [] for name in SETS}
    for chat in made:
        found = [(question, places(chat, question, meanings)) for question in chat.questions]
        everything[chat.set].extend(found)
        print(_row(chat.name, found))
        if options.misses and chat.name in LOOKED_AT:
            for question, at_hits in found:
                if sum(at <= 5 for at in at_hits) < len(question.gold):
                    told = " / ".join(chat.texts[number] for number in sorted(question.gold))
                    print(f"    {at_hits or 'none'}: {question.text} ({told})")
    for name, of_set in everything.items():
        print(_row(f"{name} set", of_set))


def _row(name: str, found: Sequence[tuple[Asked, Sequence[int]]]) -> str:
    return f"{name:12}{len(found):4}  " + "  ".join(f"{figure:.3f}" for figure in figures(found))


def _chat(chat: Mapping[str, Any], *, tail: bool) -> Chat:
    people: list[str] = chat["people"]
    told = written(chat["said"], people)
    make = fresh if tail else indexed
    return Chat(
        name=chat["name"],
        corpus=make(tuple(sorted(people)), list(told.events.items())),
        questions=tuple(
            Asked(text=question["asked"], gold=frozenset(told.numbers[mark] for mark in question["gold"]))
            for question in chat["questions"]
        ),
        texts=told.texts,
        set=chat.get("set", "first"),
    )


if __name__ == "__main__":
    main()
