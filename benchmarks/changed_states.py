"""Which statement is found of facts that changed up to three times, in passing and among what others say of the same.

The conversations of data/changed_states.toml, and of data/changed_in_talk.toml with `--in-talk`, are told line by line;
see there what is asked. It needs no database: the ranking runs on blocks of the real planner, as in locomo_offline.
After a first measurement the misses of the chats that are `looked_at` may be listed; the others are only measured.

    python -m benchmarks.changed_states [--in-talk] [--misses] [--embeddings]
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Literal

from benchmarks.changed_facts import DATA
from benchmarks.chat_lines import Written, written
from benchmarks.locomo_offline import Meanings, indexed
from myria.index import Corpus
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank

Asks = Literal["now", "before", "first", "change"]

STATES = "changed_states.toml"
IN_TALK = "changed_in_talk.toml"
FIRST = 5
_APART = 53
"""Lines of small talk by which the conversations begin apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A question about something that changed, with the numbers of its statements from the oldest to the newest."""

    text: str
    asks: Asks
    states: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What people said, indexed, and the questions about it."""

    name: str
    looked_at: bool
    corpus: Corpus
    facts: tuple[Fact, ...]
    texts: Mapping[int, str]
    events: Mapping[int, Mapping[str, Any]]
    """Arguments of append_event, by number."""


Found = tuple[Fact, tuple[int | None, ...]]
"""A question and the places of its statements."""


def conversations(data: str = STATES) -> Iterator[Conversation]:
    """Yield every conversation of a set, STATES or IN_TALK."""
    lines = tomllib.loads((DATA / "small_talk.toml").read_text(encoding="utf-8"))["lines"]
    chats = tomllib.loads((DATA / data).read_text(encoding="utf-8"))["chats"]
    for at, chat in enumerate(chats):
        people: list[str] = chat["people"]
        told = written(chat["said"], people, islice(cycle(lines), at * _APART, None))
        yield Conversation(
            name=chat["name"],
            looked_at=chat.get("looked_at", False),
            corpus=indexed(tuple(sorted(people)), list(told.events.items())),
            facts=tuple(_facts(chat["facts"], told)),
            texts=told.texts,
            events=told.events,
        )


def places(conversation: Conversation, fact: Fact, meanings: Meanings | None = None) -> tuple[int | None, ...]:
    """Return the places of the statements among the first twenty hits, from 1."""
    corpora = (conversation.corpus,)
    question = Question(text=fact.text)
    near = None if meanings is None else meanings.near(question, corpora)
    hits = [hit.event_seq for hit in rank(question, corpora, limit=20, near=near).hits]
    return tuple(hits.index(seq) + 1 if seq in hits else None for seq in fact.states)


def figures(found: Sequence[Found]) -> dict[str, float]:
    """Return the shares of questions that ask for each, where there are any."""
    by_asks = {asks: [at for fact, at in found if fact.asks == asks] for asks in ("now", "before", "first", "change")}
    shares = {
        "now: newest in the first five": _share(_among(at[-1]) for at in by_asks["now"]),
        "now: newest above all older": _share(all(_above(at[-1], one) for one in at[:-1]) for at in by_asks["now"]),
        "before: the one before in the first five": _share(_among(at[-2]) for at in by_asks["before"]),
        "first: oldest in the first five": _share(_among(at[0]) for at in by_asks["first"]),
        "change: newest and an older one in the first five": _share(
            _among(at[-1]) and any(map(_among, at[:-1])) for at in by_asks["change"]
        ),
    }
    return {name: share for name, share in shares.items() if by_asks[name.partition(":")[0]]}


def main() -> None:
    """Print the figures of the conversations that are looked at and of those that are only measured."""
    parser = argparse.ArgumentParser(description="Which statement is found of facts that changed.")
    parser.add_argument("--in-talk", action="store_true", help="facts that changed in ordinary talk")
    parser.add_argument("--misses", action="store_true", help="list what was not found, of conversations looked at")
    parser.add_argument("--embeddings", action="store_true", help="with vectors of the local model")
    options = parser.parse_args()
    talks = list(conversations(IN_TALK if options.in_talk else STATES))
    meanings = Meanings([(talk.corpus, talk.texts) for talk in talks]) if options.embeddings else None
    found = {talk.name: [(fact, places(talk, fact, meanings)) for fact in talk.facts] for talk in talks}
    _print("all", [one for talk in talks for one in found[talk.name]])
    _print("looked at", [one for talk in talks if talk.looked_at for one in found[talk.name]])
    _print("only measured", [one for talk in talks if not talk.looked_at for one in found[talk.name]])
    for talk in talks if options.misses else ():
        if talk.looked_at:
            _list_misses(talk, found[talk.name])


def _print(name: str, found: Sequence[Found]) -> None:
    print(f"{name}: {len(found)} questions")
    for figure, share in figures(found).items():
        print(f"  {figure:52}{share:.3f}")


def _list_misses(talk: Conversation, found: Sequence[Found]) -> None:
    for fact, at in found:
        shares = figures([(fact, at)])
        if any(share < 1 for name, share in shares.items() if name.startswith(fact.asks)):
            print(f"  {fact.asks:7} {at}: {fact.text}")
            for seq in fact.states:
                print(f"          {talk.texts[seq]}")


def _facts(given: Sequence[Mapping[str, Any]], told: Written) -> Iterator[Fact]:
    kinds: tuple[Asks, ...] = ("now", "before", "first", "change")
    for one in given:
        for asks in kinds:
            if asks in one:
                states = tuple(told.numbers[mark] for mark in one["states"])
                yield Fact(text=one[asks], asks=asks, states=states)


def _share(flags: Iterator[bool]) -> float:
    values = list(flags)
    return sum(values) / max(1, len(values))


def _among(place: int | None) -> bool:
    return place is not None and place <= FIRST


def _above(place: int | None, other: int | None) -> bool:
    return place is not None and (other is None or place < other)


if __name__ == "__main__":
    main()
