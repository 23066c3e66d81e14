"""How well the ranking finds what answers a question, on every kind of talk, beside plain BM25: the exam of all rules.

    python -m benchmarks.retrieval [--data DIR] [--kinds talk,code] [--vectors] [--blind]

Each log is planned by the real planner, indexed in memory and asked its questions; only vectors of texts are kept
between runs. R@k is the share of a question's gold events among the first k, averaged over questions; MRR the mean of
1 / place of the first of them within 20. `--vectors` adds the ranking with vectors of the local model. `--blind` asks
the halves that nobody looks at while rules are written; of those only totals are printed. `--without NAME[,NAME]` gives
signals of the ranking (`myria.search.weights`) the weight 0; what recall finds of notes is not tried so.

`newer first` is the share of facts that changed whose newest statement stands above all older ones; `wrong first` the
share of questions whose first hit only seems to be the answer, and how many of these are so because of the rule
"changed later"; `nothing` the share of questions that nobody can answer from the log and that find nothing; `lost` the
same of those that can be answered. `--notes` adds what goes through remember and recall, on a PostgreSQL of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from benchmarks.in_memory import Bm25, Meanings
from benchmarks.kept_notes import recalled
from benchmarks.retrieval_logs import CLOSE_NOTES, KINDS, NOTES, Asked, Log, SetMissing, notes
from myria.index.embeddings.local import LocalModel
from myria.search.question import Question
from myria.search.ranking import Ranking, rank
from myria.search.weights import WEIGHTS, Weights

LIMIT = 20
PRODUCT, PLAIN, VECTORS = "product", "BM25", "with vectors"
DATA_FOLDER = "MYRIA_GOLD_DATA"
VECTORS_FILE = user_cache_path("myria") / "benchmarks" / "vectors.sqlite3"
_PROCESSES = 2
_KEPT = (NOTES, CLOSE_NOTES)
"""Kinds that are kept as notes and asked by recall."""
_TOGETHER = {"chats": "chats, mean", "changed": "changed, mean"}
"""Kinds of several rows, by how their names begin, which have a mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What one question found: numbers of events by way of ranking, best first.

    Attributes:
        said_by: who said each gold event.
        unmoved: the first hit of the product without the rule "changed later", where that was tried.
    """

    asked: Asked
    found: Mapping[str, tuple[int, ...]]
    said_by: Mapping[int, str]
    unmoved: int | None = None

    def recall(self, way: str, cut: int) -> float:
        """Return the share of the gold events among the first."""
        return len(self.asked.gold.intersection(self.found[way][:cut])) / len(self.asked.gold)

    def reciprocal_rank(self, way: str) -> float:
        """Return 1 / the place of the first gold event, 0 where none is among the hits."""
        return next((1 / at for at, number in enumerate(self.found[way], 1) if number in self.asked.gold), 0.0)

    def is_newest_first(self, way: str) -> bool:
        """Tell whether the gold event is found, above all that are wrong."""
        places = [
            number in self.asked.gold for number in self.found[way] if number in self.asked.gold | self.asked.wrong
        ]
        return bool(places) and places[0]

    def is_wrong_first(self, way: str) -> bool:
        """Tell whether a wrong statement is the first hit."""
        return bool(self.asked.wrong.intersection(self.found[way][:1]))


def answered(
    log: Log, vectors: Path | None = None, *, unmoved: bool = False, weights: Weights = WEIGHTS
) -> list[Answered]:
    """Ask a log its questions.

    Args:
        vectors: also ask with vectors of the local model, which are kept in this file.
        unmoved: also without what was said later.
        weights: what each signal of the ranking counts.
    """
    corpus = log.corpus()
    plain = Bm25(log.texts())
    meanings = Meanings(log.whole_texts(), vectors) if vectors is not None else None
    rows: list[Answered] = []
    for asked in log.questions:
        question = Question(text=asked.text)
        found = {
            PRODUCT: _first(rank(question, corpus, limit=LIMIT, weights=weights)),
            PLAIN: plain.first(asked.text, LIMIT),
        }
        if meanings is not None:
            near = meanings.near(question, corpus)
            found[VECTORS] = _first(rank(question, corpus, limit=LIMIT, near=near, weights=weights))
        before = None
        if unmoved:
            before = next(iter(_first(rank(question, corpus, limit=1, weights=weights_without(["newer"])))), None)
        said_by = {number: log.said_by(number) for number in asked.gold}
        rows.append(Answered(asked=asked, found=found, said_by=said_by, unmoved=before))
    return rows


def kind_answered(
    kind: str, data: Path | None = None, *, vectors: bool = False, blind: bool = False, without: Sequence[str] = ()
) -> list[Answered] | str:
    """Return what the questions of a kind found, or why there are none."""
    try:
        if kind in _KEPT:
            return notes_answered(notes(kind, blind=blind), vectors=vectors)
        logs = KINDS[kind](data, blind=blind)
    except SetMissing as missing:
        return str(missing)
    file, weights = VECTORS_FILE if vectors else None, weights_without(without)
    return [row for log in logs for row in answered(log, file, unmoved=kind == "unchanged", weights=weights)]


def notes_answered(logs: Sequence[Log], *, vectors: bool = False) -> list[Answered]:
    """Keep logs as notes and ask for them by recall."""
    by_words, with_vectors = asyncio.run(recalled(logs, LIMIT, vectors=vectors))
    rows: list[Answered] = []
    for at, log in enumerate(logs):
        plain = Bm25(log.texts())
        for question, asked in enumerate(log.questions):
            found = {PRODUCT: by_words[at][question], PLAIN: plain.first(asked.text, LIMIT)}
            if vectors:
                found[VECTORS] = with_vectors[at][question]
            rows.append(Answered(asked=asked, found=found, said_by=dict.fromkeys(asked.gold, NOTES)))
    return rows


def weights_without(signals: Sequence[str]) -> Weights:
    """Return the ranking's weights with those of some signals 0.

    Raises:
        SystemExit: the ranking has no signal of that name.
    """
    off: dict[str, Any] = {}
    for signal in signals:
        if signal not in (known := [one.name for one in fields(WEIGHTS)]):
            raise SystemExit(f"no signal {signal!r}; there are: {', '.join(known)}")
        was = getattr(WEIGHTS, signal)
        off[signal] = tuple(0 for _ in was) if isinstance(was, tuple) else 0
    return replace(WEIGHTS, **off)


def main() -> None:
    """Print the tables."""
    options = _parser().parse_args()
    if options.blind and options.misses:
        raise SystemExit("--misses lists questions, which nobody looks at in the blind halves")
    kinds = _chosen(options.kinds, notes_too=options.notes)
    if options.vectors:
        LocalModel.installed()
    asking = partial(
        kind_answered,
        data=options.data,
        vectors=options.vectors,
        blind=options.blind,
        without=tuple(filter(None, (options.without or "").split(","))),
    )
    begin = time.perf_counter()
    found: dict[str, list[Answered]] = {}
    with ProcessPoolExecutor(_PROCESSES) as pool:
        running = {kind: pool.submit(asking, kind) for kind in kinds}
        for kind, task in running.items():
            rows = task.result()
            if isinstance(rows, str):
                print(f"{kind}: left out, {rows}")
            elif kind in _KEPT:
                found[kind] = [row for row in rows if not row.asked.wrong]
                found[f"{kind} changed"] = [row for row in rows if row.asked.wrong]
            else:
                found[kind] = rows
    for line in tables(found, categories=options.categories and not options.blind):
        print(line)
    for kind, rows in found.items() if options.misses else ():
        for row in rows:
            is_lost = row.asked.gold and row.recall(PRODUCT, 10) < 1
            if is_lost or row.is_wrong_first(PRODUCT) or (not row.asked.gold and row.found[PRODUCT]):
                print(f"{kind}: {row.asked.text} gold {sorted(row.asked.gold)} found {row.found[PRODUCT][:10]}")
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)


def _chosen(named: str | None, *, notes_too: bool) -> list[str]:
    """Return the kinds that are named: `chats` are all whose name begins so.

    Raises:
        SystemExit: one of them is no kind.
    """
    known = [*KINDS, *_KEPT]
    if named is None:
        return known if notes_too else list(KINDS)
    chosen = [kind for name in named.split(",") for kind in known if kind == name or kind.startswith(f"{name} ")]
    if not chosen:
        raise SystemExit(f"no kind {named!r}; there are: {', '.join(known)}")
    return chosen


def tables(found: Mapping[str, Sequence[Answered]], *, categories: bool = False) -> Iterator[str]:
    """Yield the lines of the tables: all kinds, what finds nothing, by who said the answer, and by category."""
    ways = list(dict.fromkeys(way for rows in found.values() for row in rows[:1] for way in row.found))
    header = "".join(f" {way} R@5 | R@10 | MRR |" for way in ways)
    yield f"| kind | n |{header} besides |"
    yield "|---|---:|" + "---:|" * 3 * len(ways) + "---|"
    means: dict[str, list[list[float]]] = defaultdict(list)
    for kind, rows in found.items():
        told = [row for row in rows if row.asked.gold]
        if not told:
            continue
        values = _values(told, ways)
        means[kind.split()[0]].append(values)
        yield f"| {kind} | {len(told)} | {_cells(values)} | {'; '.join(_besides(kind, told, ways))} |"
    for group, lines in means.items():
        if group in _TOGETHER and len(lines) > 1:
            mean = [sum(column) / len(lines) for column in zip(*lines, strict=True)]
            yield f"| {_TOGETHER[group]} | | {_cells(mean)} | |"
    yield ""
    yield from _nothing_found(found, ways)
    yield ""
    yield from _grouped("said by", found, ways, _by_speaker)
    if categories:
        yield ""
        yield from _grouped("category", found, ways, _by_category)


def _grouped(
    name: str,
    found: Mapping[str, Sequence[Answered]],
    ways: Sequence[str],
    groups: Callable[[Answered], Iterator[tuple[str, Answered]]],
) -> Iterator[str]:
    yield f"| kind | {name} | n |" + "".join(f" {way} R@10 |" for way in ways)
    yield "|---|---|---:|" + "---:|" * len(ways)
    for kind, rows in found.items():
        members: dict[str, list[Answered]] = defaultdict(list)
        for row in rows:
            for group, part in groups(row):
                members[group].append(part)
        for group, parts in sorted(members.items()):
            values = [_mean([part.recall(way, 10) for part in parts if way in part.found]) for way in ways]
            yield f"| {kind} | {group} | {len(parts)} | {_cells(values)} |"


def _by_category(row: Answered) -> Iterator[tuple[str, Answered]]:
    if row.asked.gold and row.asked.category:
        yield row.asked.category, row


def _by_speaker(row: Answered) -> Iterator[tuple[str, Answered]]:
    """Yield the question once for each who said gold events, with those events alone as its gold."""
    for speaker in sorted(set(row.said_by.values())):
        gold = frozenset(number for number in row.asked.gold if row.said_by[number] == speaker)
        asked = Asked(text=row.asked.text, gold=gold, wrong=row.asked.wrong, category=row.asked.category)
        yield speaker, Answered(asked=asked, found=row.found, said_by=row.said_by)


def _values(rows: Sequence[Answered], ways: Sequence[str]) -> list[float]:
    values: list[float] = []
    for way in ways:
        ranked = [row for row in rows if way in row.found]
        values += [_mean([row.recall(way, cut) for row in ranked]) for cut in (5, 10)]
        values.append(_mean([row.reciprocal_rank(way) for row in ranked]))
    return values


def _besides(kind: str, rows: Sequence[Answered], ways: Sequence[str]) -> Iterator[str]:
    """Yield the figures that only some kinds have."""
    ways = [way for way in ways if way in rows[0].found]
    if "changed" in kind.split():
        yield "newer first " + ", ".join(f"{way} {_share(row.is_newest_first(way) for row in rows)}" for way in ways)
    elif any(row.asked.wrong for row in rows):
        yield "wrong first " + ", ".join(f"{way} {_share(row.is_wrong_first(way) for row in rows)}" for way in ways)
        moved = [row.is_wrong_first(PRODUCT) and row.unmoved not in row.asked.wrong for row in rows]
        yield f"by what was said later {_share(moved)}"


def _nothing_found(found: Mapping[str, Sequence[Answered]], ways: Sequence[str]) -> Iterator[str]:
    """Yield which questions find nothing: of those that a log does not answer, and of those that it does."""
    columns = [f"absent | {' | '.join(f'{way} nothing' for way in ways)}"]
    columns.append(f"present | {' | '.join(f'{way} lost' for way in ways)}")
    yield f"| kind | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * 2 * (1 + len(ways))
    untold = [row for rows in found.values() for row in rows if not row.asked.gold]
    told = {kind: [row for row in rows if row.asked.gold] for kind, rows in found.items()}
    for kind in dict.fromkeys((*told, *(row.asked.category for row in untold), "all")):
        absent = [row for row in untold if kind in (row.asked.category, "all")]
        present = [row for name, rows in told.items() for row in rows if kind in (name, "all")]
        if absent or present:
            cells = [f"{len(rows)} | {_cells([_silent(rows, way) for way in ways])}" for rows in (absent, present)]
            yield f"| {kind} | {' | '.join(cells)} |"


def _silent(rows: Sequence[Answered], way: str) -> float:
    """Return the share of the questions that find nothing at all."""
    return _mean([not row.found[way] for row in rows if way in row.found])


def _share(flags: Iterable[bool]) -> str:
    return _figure(_mean(list(flags)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _cells(values: Sequence[float]) -> str:
    return " | ".join(map(_figure, values))


def _figure(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _first(ranked: Ranking) -> tuple[int, ...]:
    return tuple(hit.event_seq for hit in ranked.hits)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="What the ranking finds, on every kind of talk.")
    folder = os.environ.get(DATA_FOLDER)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(folder) if folder else None,
        help=f"folder with locomo-dev/ and agents-dev/ (default: ${DATA_FOLDER})",
    )
    parser.add_argument("--kinds", metavar="A,B", help=f"only these of: {', '.join(KINDS)}")
    parser.add_argument("--notes", action="store_true", help="also what is kept as notes: needs a PostgreSQL")
    parser.add_argument("--vectors", action="store_true", help="also with vectors of the local model")
    parser.add_argument("--blind", action="store_true", help="the halves that nobody looks at while rules are written")
    parser.add_argument("--categories", action="store_true", help="also R@10 by category")
    parser.add_argument("--misses", action="store_true", help="list what was not found among the first ten")
    parser.add_argument("--without", metavar="NAME,NAME", help="give these signals the weight 0")
    return parser


if __name__ == "__main__":
    main()
