"""How well questions in eight languages find what was said in the same language, in other forms of the words.

Each language of data/languages.toml is one conversation of two people, in which the facts stand among small talk;
`mixed` asks the same of all of them in one memory. It needs no database: the ranking runs on blocks of the real
planner, as in locomo_offline.

    python -m benchmarks.languages [--half dev|blind] [--misses] [--embeddings | --endpoint URL --template FILE]
    python -m benchmarks.languages --across [--embeddings | --endpoint URL --template FILE]

The facts are the same in every language, in the same order. So with `--across` each question is asked of the memory of
every other language, and of an English one, with the names of the people there.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.locomo_offline import Meanings, add_model_options, chosen_model, indexed
from myria.index import Corpus
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank

DATA = Path(__file__).parent / "data" / "languages.toml"
HALVES = ("dev", "blind")
LIMIT = 10
_BEGIN = datetime(2025, 3, 3, 18, 0, tzinfo=UTC)
_FACTS_IN_HALF = 8
_TALK_BETWEEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, the number of the statement that answers it, and which half of the language's facts it is of."""

    text: str
    gold: int
    half: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What two people said in one language, indexed, and the questions about it."""

    language: str
    people: tuple[str, ...]
    corpus: Corpus
    questions: tuple[Asked, ...]
    texts: Mapping[int, str]


def conversations() -> list[Conversation]:
    """Return the conversation of every language; numbers of statements are unique over all of them."""
    first = 1
    made: list[Conversation] = []
    for language in tomllib.loads(DATA.read_text(encoding="utf-8"))["languages"]:
        made.append(_conversation(language, first))
        first += len(language["facts"]) * (1 + _TALK_BETWEEN)
    return made


def english() -> Conversation:
    """Return the same facts in English, which is asked in other languages alone."""
    return _conversation(tomllib.loads(DATA.read_text(encoding="utf-8"))["english"], 1_000_000)


def place(corpora: Sequence[Corpus], question: Asked, meanings: Meanings | None = None) -> int | None:
    """Return the place of the statement among the hits, from 1."""
    asked = Question(text=question.text)
    near = None if meanings is None else meanings.near(asked, corpora)
    hits = [hit.event_seq for hit in rank(asked, corpora, limit=LIMIT, near=near).hits]
    return hits.index(question.gold) + 1 if question.gold in hits else None


def figures(places: Sequence[int | None]) -> tuple[float, float, float]:
    """Return the share found first, the share found among the first three, and the mean reciprocal rank."""
    asked = max(1, len(places))
    return (
        sum(at == 1 for at in places) / asked,
        sum(at is not None and at <= 3 for at in places) / asked,
        sum(1 / at for at in places if at is not None) / asked,
    )


def main() -> None:
    """Print the figures of each language alone, and of each among all the others."""
    parser = argparse.ArgumentParser(description="Questions in eight languages.")
    parser.add_argument("--half", choices=HALVES, help="only these facts of each language")
    parser.add_argument("--misses", action="store_true", help="list what is not found first in a language alone")
    parser.add_argument("--across", action="store_true", help="ask the memories of the other languages")
    add_model_options(parser)
    options = parser.parse_args()
    made = conversations()
    model = chosen_model(options)
    told = [*made, english()]
    meanings = None if model is None else Meanings([(one.corpus, one.texts) for one in told], model)
    if options.across:
        _print_across(made, told, meanings)
        return
    everything = tuple(conversation.corpus for conversation in made)
    print(f"{'':12}{'n':>4}  first  in 3   MRR    first  in 3   MRR (all languages in one memory)")
    sums: tuple[list[int | None], list[int | None]] = ([], [])
    for conversation in made:
        asked = [question for question in conversation.questions if options.half in (None, question.half)]
        alone = [place((conversation.corpus,), question, meanings) for question in asked]
        mixed = [place(everything, question, meanings) for question in asked]
        sums[0].extend(alone)
        sums[1].extend(mixed)
        print(f"{conversation.language:12}{len(asked):4}  {_row(alone)}  {_row(mixed)}")
        if options.misses:
            for question, at in zip(asked, alone, strict=True):
                if at != 1 and question.half == "dev":
                    print(f"    {at}: {question.text}")
    print(f"{'all':12}{len(sums[0]):4}  {_row(sums[0])}  {_row(sums[1])}")


def across(asking: Conversation, told: Conversation, meanings: Meanings | None = None) -> list[int | None]:
    """Return the place of each statement of one language, asked for in another."""
    places: list[int | None] = []
    for question, answer in zip(asking.questions, told.questions, strict=True):
        text = question.text
        for name, other in zip(asking.people, told.people, strict=True):
            text = text.replace(name, other)
        places.append(place((told.corpus,), Asked(text=text, gold=answer.gold, half=question.half), meanings))
    return places


def _print_across(made: Sequence[Conversation], told: Sequence[Conversation], meanings: Meanings | None) -> None:
    print(f"{'asked in':12}{'n':>4}  first  in 3   MRR (told in English)    n  first  in 3   MRR (in the others)")
    sums: tuple[list[int | None], list[int | None]] = ([], [])
    for asking in made:
        in_english = across(asking, told[-1], meanings)
        in_others = [at for other in made if other is not asking for at in across(asking, other, meanings)]
        sums[0].extend(in_english)
        sums[1].extend(in_others)
        counts = f"{len(in_english):4}  {_row(in_english)}", f"{len(in_others):4}  {_row(in_others)}"
        print(f"{asking.language:12}{counts[0]}{'':20}{counts[1]}")
    print(f"{'all':12}{len(sums[0]):4}  {_row(sums[0])}{'':20}{len(sums[1]):4}  {_row(sums[1])}")


def _row(places: Sequence[int | None]) -> str:
    return "  ".join(f"{figure:.3f}" for figure in figures(places))


def _conversation(language: Mapping[str, Any], first: int) -> Conversation:
    people: list[str] = language["people"]
    talk = cycle(language["talk"])
    rows: list[tuple[int, Mapping[str, Any]]] = []
    questions: list[Asked] = []
    for at, fact in enumerate(language["facts"]):
        when = _BEGIN + timedelta(days=at)
        lines = [next(talk), fact["told"], *(next(talk) for _ in range(_TALK_BETWEEN - 1))]
        for place_in_day, line in enumerate(lines):
            number = first + len(rows)
            speaker = people[(at + place_in_day + 1) % 2]
            rows.append(
                (
                    number,
                    {
                        "participants": people,
                        "timestamp": (when + timedelta(minutes=place_in_day)).isoformat(),
                        "channel": "chat",
                        "source_event_key": str(number),
                        "type": "message",
                        "payload": {"speaker": speaker, "text": line},
                    },
                )
            )
            if line == fact["told"]:
                half = HALVES[at // _FACTS_IN_HALF]
                questions.append(Asked(text=fact["asked"], gold=number, half=half))
    return Conversation(
        language=language["name"],
        people=tuple(people),
        corpus=indexed(tuple(sorted(people)), rows),
        questions=tuple(questions),
        texts={number: event["payload"]["text"] for number, event in rows},
    )


if __name__ == "__main__":
    main()
