"""Which statement is found when a fact changed: the newer for now, the older for before, both for the change.

Each pair of people of data/changed_facts.toml has a conversation of sixteen sessions, a week apart: a fact stands in
one of the first eight and what replaced it eight sessions later, among small talk and what the other person says about
the same kind of thing. It needs no database: the ranking runs on blocks of the real planner, as in locomo_offline.

    python -m benchmarks.changed_facts [--half NAME] [--misses] [--embeddings | --endpoint URL --template FILE]
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

from benchmarks.locomo_offline import Meanings, add_model_options, chosen_model, indexed
from myria.index import Corpus
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank

Asks = Literal["now", "before", "change"]

DATA = Path(__file__).parent / "data"
HALVES = ("dev", "held out", "second dev", "blind", "third dev", "blind two")
FIRST = 5
_LATER = 8
_BEGIN = datetime(2025, 2, 3, 18, 0, tzinfo=UTC)
_LINES = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A question about something that changed, with the numbers of the two statements."""

    text: str
    asks: Asks
    older: int
    newer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What two people said, indexed, and the questions about it."""

    half: str
    corpus: Corpus
    facts: tuple[Fact, ...]
    texts: Mapping[int, str]
    events: Mapping[int, Mapping[str, Any]]
    """Arguments of append_event, by number."""


def conversations() -> Iterator[Conversation]:
    """Yield every pair's conversation."""
    lines = tomllib.loads((DATA / "small_talk.toml").read_text(encoding="utf-8"))["lines"]
    pairs = tomllib.loads((DATA / "changed_facts.toml").read_text(encoding="utf-8"))["pairs"]
    for at, pair in enumerate(pairs):
        yield _conversation(pair, islice(cycle(lines), at * 37, None))


def places(conversation: Conversation, fact: Fact, meanings: Meanings | None = None) -> tuple[int | None, int | None]:
    """Return the places of the older and the newer statement among the first twenty hits, from 1."""
    corpora = (conversation.corpus,)
    question = Question(text=fact.text)
    near = None if meanings is None else meanings.near(question, corpora)
    hits = [hit.event_seq for hit in rank(question, corpora, limit=20, near=near).hits]
    older, newer = (hits.index(seq) + 1 if seq in hits else None for seq in (fact.older, fact.newer))
    return older, newer


def figures(found: Sequence[tuple[Fact, int | None, int | None]]) -> dict[str, float]:
    """Return the shares of questions that ask for each."""
    now = [(older, newer) for fact, older, newer in found if fact.asks == "now"]
    before = [(older, newer) for fact, older, newer in found if fact.asks == "before"]
    change = [(older, newer) for fact, older, newer in found if fact.asks == "change"]
    return {
        "now: newer in the first five": _share(_among(newer) for _, newer in now),
        "now: newer above the older": _share(_above(newer, older) for older, newer in now),
        "before: older in the first five": _share(_among(older) for older, _ in before),
        "before: older above the newer": _share(_above(older, newer) for older, newer in before),
        "change: both in the first five": _share(_among(older) and _among(newer) for older, newer in change),
    }


def main() -> None:
    """Print the figures of each half."""
    parser = argparse.ArgumentParser(description="Which statement is found when a fact changed.")
    parser.add_argument("--half", choices=HALVES, help="only these conversations")
    parser.add_argument("--misses", action="store_true", help="list what was not found as it should")
    add_model_options(parser)
    options = parser.parse_args()
    model = chosen_model(options)
    for half in HALVES if options.half is None else (options.half,):
        chosen = [conversation for conversation in conversations() if conversation.half == half]
        meanings = None
        if model is not None:
            meanings = Meanings([(conversation.corpus, conversation.texts) for conversation in chosen], model)
        found = [
            (fact, *places(conversation, fact, meanings)) for conversation in chosen for fact in conversation.facts
        ]
        print(f"{half}: {len(found)} questions")
        for name, share in figures(found).items():
            print(f"  {name:34}{share:.3f}")
        if options.misses:
            _list_misses(chosen, meanings)


def _list_misses(chosen: Sequence[Conversation], meanings: Meanings | None) -> None:
    for conversation in chosen:
        for fact in conversation.facts:
            older, newer = places(conversation, fact, meanings)
            good = {
                "now": _among(newer) and _above(newer, older),
                "before": _among(older),
                "change": _among(older) and _among(newer),
            }[fact.asks]
            if not good:
                print(f"  {fact.asks:7} older {older} newer {newer}: {fact.text}")
                print(f"          {conversation.texts[fact.older]}\n          {conversation.texts[fact.newer]}")


def _share(flags: Iterator[bool]) -> float:
    values = list(flags)
    return sum(values) / max(1, len(values))


def _among(place: int | None) -> bool:
    return place is not None and place <= FIRST


def _above(place: int | None, other: int | None) -> bool:
    return place is not None and (other is None or place < other)


def _conversation(pair: Mapping[str, Any], talk: Iterator[str]) -> Conversation:
    people: list[str] = pair["people"]
    facts: list[dict[str, str]] = pair["facts"]
    rows: list[tuple[int, Mapping[str, Any]]] = []
    numbers: dict[tuple[int, str], int] = {}

    def say(speaker: str, text: str, when: datetime) -> int:
        number = len(rows) + 1
        rows.append(
            (
                number,
                {
                    "participants": people,
                    "timestamp": when.isoformat(),
                    "channel": "chat",
                    "source_event_key": str(number),
                    "type": "message",
                    "payload": {"speaker": speaker, "text": text},
                },
            )
        )
        return number

    for session in range(2 * _LATER):
        which, kind = session % _LATER, "older" if session < _LATER else "newer"
        fact = facts[which]
        other = people[1 - people.index(fact["who"])]
        begin = _BEGIN + timedelta(days=7 * session, hours=session % 3)
        for line in range(_LINES):
            when = begin + timedelta(seconds=40 * line)
            if line == 4 + session % 5:
                numbers[which, kind] = say(fact["who"], fact[kind], when)
            elif line == 11 and session % 2 == (which // 4) % 2:
                say(other, fact["decoy"], when)
            else:
                say(people[line % 2], next(talk), when)
    return Conversation(
        half=pair["half"],
        corpus=indexed(tuple(sorted(people)), rows),
        facts=tuple(
            Fact(text=fact[asks], asks=asks, older=numbers[at, "older"], newer=numbers[at, "newer"])
            for at, fact in enumerate(facts)
            for asks in ("now", "before", "change")
        ),
        texts={number: row["payload"]["text"] for number, row in rows},
        events=dict(rows),
    )


if __name__ == "__main__":
    main()
