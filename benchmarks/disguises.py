"""Whether the ranking's figures hold on conversations that look otherwise: LoCoMo's, disguised, in memory.

Each disguise changes how the same conversations are written, by rules and without chance, so that what was learnt from
their look rather than from their content shows: people with other names; everything in lower case; no question marks in
turns and questions; turns cut into bursts of short messages, as people type them, in lower case and without full stops
(a gold turn is found by any of its pieces); every seventh long word with a typing error. See locomo_offline for the
data and the figures.

    python -m benchmarks.disguises --data DIR [--embeddings | --endpoint URL --template FILE]
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from benchmarks.locomo_offline import (
    GoldQuestion,
    Meanings,
    add_model_options,
    chosen_model,
    gold_questions,
    indexed,
)
from myria.index import Corpus
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank

NAMES = ("Ottilie", "Bertram", "Yolanda", "Casimir", "Philippa", "Leopold", "Henrike", "Anselm", "Dorothea", "Valentin")
CUTS = (5, 10)
_LIMIT = 20
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
_PIECE_APART = timedelta(seconds=5)
_TYPED_WRONG = 7
_LONG_WORD = re.compile(r"\b[A-Za-z]{6,}\b")

Rewrite = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disguise:
    """How texts of turns and of questions are rewritten; `bursts` cuts turns into their sentences."""

    turn: Rewrite = str
    question: Rewrite = str
    renamed: bool = False
    bursts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Disguised:
    """Disguised conversations: the corpus and the texts of each, and which turn each of its messages is a piece of."""

    corpora: Mapping[str, Corpus]
    turn_of: Mapping[int, int]
    questions: Sequence[GoldQuestion]
    texts: Mapping[str, Mapping[int, str]]


def unasked(text: str) -> str:
    """Return a text without question marks."""
    return text.replace("?", "")


def typed(text: str) -> str:
    """Return a text as people type it: in lower case, without a full stop at its end."""
    return text.lower().rstrip(". ")


def mistyped(text: str) -> str:
    """Return a text with two letters exchanged in every seventh long word, counted by the letters of the words."""

    def swapped(match: re.Match[str]) -> str:
        word = match.group()
        if sum(map(ord, word.lower())) % _TYPED_WRONG:
            return word
        return word[:2] + word[3] + word[2] + word[4:]

    return _LONG_WORD.sub(swapped, text)


DISGUISES: Mapping[str, Disguise] = {
    "as they are": Disguise(),
    "renamed people": Disguise(renamed=True),
    "lower case": Disguise(turn=str.lower),
    "lower case, question too": Disguise(turn=str.lower, question=str.lower),
    "no question marks": Disguise(turn=unasked, question=unasked),
    "typing errors": Disguise(turn=mistyped),
    "typing errors in questions": Disguise(question=mistyped),
    "bursts": Disguise(turn=typed, bursts=True),
    "bursts, no marks, errors": Disguise(turn=lambda text: mistyped(unasked(typed(text))), bursts=True),
}


def disguised(folder: Path, disguise: Disguise) -> Disguised:
    """Read a folder and disguise it."""
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    events = [orjson.loads(line) for line in lines]
    people = sorted({name for event in events for name in event["participants"]})
    renamed = dict(zip(people, NAMES, strict=False)) if disguise.renamed else {}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, people))})\b")

    def named(text: str) -> str:
        return pattern.sub(lambda match: renamed.get(match.group(), match.group()), text)

    rows: dict[str, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    turn_of: dict[int, int] = {}
    for turn, event in enumerate(events, 1):
        participants = [renamed.get(name, name) for name in event["participants"]]
        payload = event["payload"]
        speaker = renamed.get(payload["speaker"], payload["speaker"])
        for at, piece in enumerate(_pieces(named(payload["text"]), bursts=disguise.bursts)):
            number = len(turn_of) + 1
            turn_of[number] = turn
            when = datetime.fromisoformat(event["timestamp"]) + at * _PIECE_APART
            said = {**payload, "speaker": speaker, "text": disguise.turn(piece)}
            key = f"{event['source_event_key']}-{at}" if at else event["source_event_key"]
            message = {"participants": participants, "timestamp": when.isoformat(), "payload": said}
            rows[_key(participants)].append((number, {**event, **message, "source_event_key": key}))
    questions = [
        GoldQuestion(
            text=disguise.question(named(question.text)),
            participants=tuple(renamed.get(name, name) for name in question.participants),
            gold=question.gold,
            category=question.category,
            conversation=question.conversation,
        )
        for question in gold_questions(folder)
    ]
    corpora = {key: indexed(tuple(key.split("\n")), events) for key, events in rows.items()}
    texts = {key: {number: event["payload"]["text"] for number, event in events} for key, events in rows.items()}
    return Disguised(corpora=corpora, turn_of=turn_of, questions=questions, texts=texts)


def scores(memory: Disguised, question: GoldQuestion, meanings: Meanings | None = None) -> tuple[float, ...]:
    """Return R@5, R@10 and the reciprocal rank of one question; a turn is found by any of its pieces."""
    corpora = [memory.corpora[_key(question.participants)]]
    asked = Question(text=question.text)
    near = None if meanings is None else meanings.near(asked, corpora)
    hits = rank(asked, corpora, limit=_LIMIT, near=near).hits
    turns = [memory.turn_of[hit.event_seq] for hit in hits]
    first = next((1 / at for at, turn in enumerate(turns, 1) if turn in question.gold), 0.0)
    return (*(len(question.gold.intersection(turns[:cut])) / len(question.gold) for cut in CUTS), first)


def main() -> None:
    """Print the figures of every disguise."""
    parser = argparse.ArgumentParser(description="LoCoMo's conversations, disguised.")
    parser.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    add_model_options(parser)
    options = parser.parse_args()
    model = chosen_model(options)
    print("| disguise | R@5 | R@10 | MRR | multi-hop R@10 |\n|---|---:|---:|---:|---:|")
    for name, disguise in DISGUISES.items():
        memory = disguised(options.data, disguise)
        meanings = None
        if model is not None:
            meanings = Meanings([(corpus, memory.texts[key]) for key, corpus in memory.corpora.items()], model)
        found = [(question, scores(memory, question, meanings)) for question in memory.questions]
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in figures(found)) + " |", flush=True)


def figures(found: Sequence[tuple[GoldQuestion, tuple[float, ...]]]) -> tuple[float, ...]:
    """Return R@5, R@10, MRR and R@10 of multi-hop questions."""
    hops = [row for question, row in found if question.category == "multi-hop"]
    means = [sum(row[at] for _, row in found) / max(1, len(found)) for at in range(3)]
    return (*means, sum(row[1] for row in hops) / max(1, len(hops)))


def _key(participants: Sequence[str]) -> str:
    return "\n".join(sorted(participants))


def _pieces(text: str, *, bursts: bool) -> Iterator[str]:
    pieces = [piece for piece in _SENTENCE_ENDS.split(text) if piece.strip()] if bursts else []
    yield from pieces or [text]


if __name__ == "__main__":
    main()
