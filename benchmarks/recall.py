"""What recall gives an agent for its tokens: gold turns within a budget, the share of memories in the text, and time.

Two memories are loaded and built: the demo's (examples/workshop.jsonl) and, where a data set is given, one of real
conversations (see benchmarks.locomo). Each question is asked through the agent's face, in this process, by those who
may see its conversation, beside query_event_nodes with the same words, in turns. A further question each in Japanese,
emoji and code, over events of that script, tries the bound.

    python -m benchmarks.recall [--data FOLDER] [--questions 100]

With --sizes, the cost of recall over generated logs of these sizes is compared too (see benchmarks.reads).
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.adapter import event_lines
from benchmarks.building import build
from benchmarks.cluster import ROOT, Cluster
from benchmarks.figures import quantile
from benchmarks.locomo import CATEGORIES, Question, read_questions
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import TENANT, built, load
from benchmarks.report import Report, number
from benchmarks.statements import statement
from benchmarks.workload import scopes
from myria.access.principal import Principal
from myria.contract.queries import EventNodesQuery
from myria.memory import Memory
from myria.settings import Settings
from myria.tokens import token_counter
from myria_server.faces import agent

PART = "recall"
BUDGET = 800
LEAST_GOLD = 0.80
LEAST_SHARE = 0.60
MOST_RATIO = 1.3
MOST_GROWTH = 1.5
SINGLE_HOP = 4
ROUNDS = 4
_LEAST_ASKED = 400
"""Questions asked of a memory at least, in rounds: of few questions, a 95th percentile says little."""

SCRIPTS = {
    "Japanese": "窯は金曜日に焚くと決めました。釉薬は青磁です。次の記録{}。",
    "emoji": "👩🏽‍🚀🔥🏺🎉👨‍👩‍👧‍👦 kiln {} 🇯🇵🇵🇹",
    "code": "for x in range({}):\n    print(f'{{x:>3}}', kiln[x] ** 2)  # ok",
}

_HANDLE = re.compile(r"\[(e:[0-9]+)\]$", re.MULTILINE)

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Measured:
    """What the questions of one memory gave; times in milliseconds, `share` of the text's tokens that are memories."""

    text_tokens: list[int] = field(default_factory=list)
    json_tokens: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    in_text: dict[int, list[float]] = field(default_factory=dict)
    in_json: dict[int, list[float]] = field(default_factory=dict)
    recall_ms: list[float] = field(default_factory=list)
    query_ms: list[float] = field(default_factory=list)


class Asker:
    """Asks one memory through the agent's face.

    Args:
        keys: source_event_key by event_id.
    """

    def __init__(self, memory: Memory, keys: dict[str, str]) -> None:
        self._memory = memory
        self._keys = keys
        self._recall = agent.handlers(memory, memory.settings)["recall"]
        self._count = token_counter().count

    async def recall(self, participants: Sequence[str], text: str) -> tuple[Json, str]:
        """Return the structured content and the text of an answer."""
        *own, asking = participants
        principal = Principal(
            tenant=TENANT,
            actor="benchmark",
            roles=frozenset({"read"}),
            faces=frozenset({"agent"}),
            own=tuple(own),
            may_ask=("*",),
            anyone=not own,
        )
        arguments = {"text": text, "agentId": asking, "tokenBudget": BUDGET, "format": "text"}
        shown = await self._recall(principal, arguments)
        if isinstance(shown, dict) or shown.text is None:
            raise TypeError("recall answers as text")
        return shown.content, shown.text

    async def ask(self, question: Question, measured: Measured, *, query_first: bool = False) -> None:
        """Ask one question and note what came of it; whatever comes first pays for what the processor has forgotten."""
        if query_first:
            await self._query(question, measured)
        began = time.perf_counter()
        content, text = await self.recall(question.participants, question.text)
        body = orjson.dumps(content)
        measured.recall_ms.append((time.perf_counter() - began) * 1000)
        if not query_first:
            await self._query(question, measured)
        text_tokens = self._count(text)
        measured.text_tokens.append(text_tokens)
        measured.json_tokens.append(self._count(body.decode()))
        lines = [line for line in text.split("\n")[2:-1] if line and not line.startswith("# ")]
        memories = [_HANDLE.sub("", line).split(": ", 1)[-1] for line in lines]
        measured.share.append(sum(map(self._count, memories)) / text_tokens if lines else 0.0)
        measured.lines.append(len(lines))
        in_text = await self._sources(_HANDLE.findall(text))
        in_json = await self._sources([item["id"] for item in content["fragments"] if item["id"].startswith("e:")])
        for found, share in ((in_text, measured.in_text), (in_json, measured.in_json)):
            share.setdefault(question.category, []).append(len(question.gold & found) / len(question.gold))

    async def _query(self, question: Question, measured: Measured) -> None:
        began = time.perf_counter()
        query = EventNodesQuery(participants=tuple(sorted(question.participants)), query=question.text)
        orjson.dumps(await self._memory.query_event_nodes(TENANT, query))
        measured.query_ms.append((time.perf_counter() - began) * 1000)

    async def _sources(self, handles: Sequence[str]) -> set[str]:
        return {self._keys[event_id] for event_id in await self._memory.event_ids(TENANT, handles)}


async def measure(options: Common, data: Path | None, most: int, sizes: Sequence[int]) -> int:
    """Load, build and ask; write the report and return the exit status."""
    report = Report(PART)
    async with Cluster(options.work_dir) as cluster:
        demo = ROOT / "examples"
        report.figures["demo"] = await _quality(cluster, options, demo / "workshop.jsonl", _demo_questions(demo))
        _promises(report, "demo")
        if data is not None:
            questions = read_questions(data / "questions.jsonl")
            single = [question for question in questions if question.category == SINGLE_HOP]
            others = [question for question in questions if question.category != SINGLE_HOP]
            # spread over all conversations, and more single hops than others: those have a limit of their own
            chosen = _spread(single, most - most // 4) + _spread(others, most // 4)
            report.figures["conversations"] = await _quality(cluster, options, data / "events.jsonl", chosen)
            _promises(report, "conversations")
        await _bound(cluster, options, report)
        if sizes:
            await _growth(cluster, options, report, sizes)
    return report.finish(options.out)


async def _prepare(cluster: Cluster, options: Common, name: str, lines: list[bytes]) -> dict[str, str]:
    """Load and build a memory and return source_event_key by event_id."""
    dsns = await cluster.create(name)
    await load(dsns.server, lines, total=len(lines), what=f"loading {name}")
    await build(dsns, options.work_dir / "log" / f"{name}.log", full=True)
    await cluster.tidy(name)
    connection = await cluster.connect(name)
    try:
        rows = await connection.fetch(statement("source_keys"))
        return {row["event_id"]: row["source_event_key"] for row in rows}
    finally:
        await connection.close()


async def _quality(cluster: Cluster, options: Common, path: Path, questions: Sequence[Question]) -> Json:
    """Return the figures of a memory of these events."""
    database = f"bench_recall_{path.stem}"
    with path.open("rb") as source:
        keys = await _prepare(cluster, options, database, list(event_lines(source)))
    measured = Measured()
    async with Memory(cluster.dsns(database).server, Settings.load()) as memory:
        asker = Asker(memory, keys)
        for question in questions:
            await asker.ask(question, Measured())  # what is read for the first time is not what is compared
        rounds = max(ROUNDS, _LEAST_ASKED // len(questions))
        for round_ in range(rounds):
            for question in questions:
                await asker.ask(question, measured, query_first=round_ % 2 == 1)
    await cluster.drop(database)
    recall, query = sorted(measured.recall_ms), sorted(measured.query_ms)
    return {
        "questions": len(questions),
        "most_text_tokens": max(measured.text_tokens),
        "most_structured_tokens": max(measured.json_tokens),
        "lines": round(_mean(measured.lines), 1),
        "share": round(_mean(measured.share), 3),
        "gold": {
            label: {
                "count": len(found) // rounds,
                "text": round(_mean(found), 3),
                "structured": round(_mean(measured.in_json[category]), 3),
            }
            for category, label in CATEGORIES.items()
            if (found := measured.in_text.get(category))
        },
        "recall_p50_ms": round(quantile(recall, 0.5), 2),
        "recall_p95_ms": round(quantile(recall, 0.95), 2),
        "query_p50_ms": round(quantile(query, 0.5), 2),
        "query_p95_ms": round(quantile(query, 0.95), 2),
        "p95_ratio": round(quantile(recall, 0.95) / quantile(query, 0.95), 3),
    }


def _promises(report: Report, name: str) -> None:
    """Print the figures of a memory and note whether its promises hold."""
    figures = report.figures[name]
    report.table(name, ("", "value"), [(key, str(value)) for key, value in figures.items() if key != "gold"])
    gold = figures["gold"]
    rows = [(label, row["count"], number(row["text"], 3), number(row["structured"], 3)) for label, row in gold.items()]
    report.table(f"{name}: gold turns within {BUDGET} tokens", ("questions", "count", "text", "structured"), rows)
    report.check(f"{name}: tokens of the text", figures["most_text_tokens"], BUDGET)
    report.check(f"{name}: tokens of the structured content", figures["most_structured_tokens"], BUDGET)
    report.check(f"{name}: share of memories in the text", figures["share"], LEAST_SHARE, at_least=True)
    single = gold[CATEGORIES[SINGLE_HOP]]["text"]
    report.check(f"{name}: gold turns of single hops in the text", single, LEAST_GOLD, at_least=True)
    report.check(f"{name}: p95 by that of query_event_nodes", figures["p95_ratio"], MOST_RATIO)


async def _bound(cluster: Cluster, options: Common, report: Report) -> None:
    """Try the bound on scripts that cost most tokens for each character."""
    lines = [
        orjson.dumps(
            {
                "timestamp": f"2026-03-{1 + at % 28:02}T10:00:00Z",
                "channel": "scripts",
                "participants": [script.lower()],
                "source_event_key": f"{script}-{at}",
                "type": "message",
                "payload": {"text": text.format(at) * (1 + at % 4), "speaker": "窯元 🏺"},
            }
        )
        for script, text in SCRIPTS.items()
        for at in range(60)
    ]
    keys = await _prepare(cluster, options, "bench_recall_scripts", lines)
    count = token_counter().count
    async with Memory(cluster.dsns("bench_recall_scripts").server, Settings.load()) as memory:
        asker = Asker(memory, keys)
        for script, words in (("Japanese", "青磁の窯"), ("emoji", "kiln 🔥"), ("code", "print kiln range")):
            content, text = await asker.recall([script.lower()], words)
            report.check(f"{script}: tokens of the text", count(text), BUDGET)
            report.check(f"{script}: tokens of the structured content", count(orjson.dumps(content).decode()), BUDGET)
    await cluster.drop("bench_recall_scripts")


async def _growth(cluster: Cluster, options: Common, report: Report, sizes: Sequence[int]) -> None:
    """Compare recall over scopes of like size in logs of different sizes."""
    medians: dict[int, float] = {}
    for size in sizes:
        database = await built(cluster, options, size)
        connection = await cluster.connect(database.name)
        try:
            every = await scopes(connection)
            texts = [row["text"] for row in await connection.fetch(statement("some_texts"), 40)]
        finally:
            await connection.close()
        like = [scope for scope in every if scope.visible in range(1_000, 2_501)][:20]
        took = []
        async with Memory(cluster.dsns(database.name).server, Settings.load()) as memory:
            asker = Asker(memory, {})
            for round_ in range(1 + ROUNDS):
                for at, scope in enumerate(like):
                    words = " ".join(texts[at % len(texts)].split()[:4])
                    began = time.perf_counter()
                    await asker.recall(scope.participants, words)
                    if round_:
                        took.append((time.perf_counter() - began) * 1000)
        medians[size] = quantile(sorted(took), 0.5)
    report.figures["growth_p50_ms"] = {size: round(value, 2) for size, value in medians.items()}
    first, last = min(sizes), max(sizes)
    if last > first:
        ratio = medians[last] / medians[first]
        report.check(f"recall at {last:,} events by that at {first:,}", ratio, MOST_GROWTH)


def _demo_questions(folder: Path) -> list[Question]:
    """Return the demo's questions; each names one fact or more, so they are no single hops of their own."""
    lines = (folder / "questions.jsonl").read_bytes().splitlines()
    return [
        Question(
            question_id=item["id"],
            participants=item["participants"],
            text=item["question"],
            category=SINGLE_HOP if item["kind"] == "single_fact" else 1,
            gold=frozenset(item["evidence"]),
        )
        for item in map(orjson.loads, lines)
        if item["evidence"]
    ]


def _spread(questions: Sequence[Question], most: int) -> list[Question]:
    """Return at most so many questions, evenly from the whole list."""
    step = max(1, len(questions) / most)
    return [questions[int(at * step)] for at in range(min(most, len(questions)))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, help="folder with events.jsonl and questions.jsonl")
    options.add_argument("--questions", type=int, default=100, help="of the data set (default: %(default)s)")
    given = options.parse_args()
    shared = common(given)
    sizes = shared.sizes if given.sizes or shared.full else ()
    raise SystemExit(run(measure(shared, given.data, given.questions, sizes)))


if __name__ == "__main__":
    main()
