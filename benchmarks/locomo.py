"""Retrieval quality on real conversations: recall of gold evidence, by turns, over MCP.

The data set is a folder with events.jsonl (arguments of append_event with a label `conversation`) and questions.jsonl
(participants, question, category, evidence as source_event_keys), as made from LoCoMo. Events are appended over MCP by
the MCP client, indexed, and the whole index is verified with `myria verify --deep`; then every question with gold
evidence is asked by the conversation's participants with its words alone.

R@k = |gold in the first k events| / |gold|, mean over questions. RT@2000: the same within the longest prefix of events
that fits 2,000 tokens (characters / 4). MRR: 1 / position of the first gold event. Category 5 (adversarial) is left
out. From query_references all event_ref and event nodes are taken, by score, then event_seq.

    python -m benchmarks.locomo --data FOLDER [--url http://127.0.0.1:8321/mcp]
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp
import orjson

from benchmarks.adapter import batches, event_arguments
from benchmarks.figures import quantile
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import MYRIA, Server, run_command
from benchmarks.report import Report, number
from myria.contract.tools import PATH_OF, path_of
from myria_cli import console
from myria_cli.connecting import admin_url

PART = "locomo"
BATCH = 500
ADVERSARIAL = 5
CUTS = (5, 10, 20)
TOKENS = 2_000
MOST_EVENTS = 200
MOST_NODES = 200
LEAST_RECALL = 0.70
BUILD_WITHIN_S = 600.0
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with gold evidence."""

    question_id: str
    participants: list[str]
    text: str
    category: int
    gold: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one question was answered; `tokens` is RT@2000."""

    category: int
    recall: dict[int, float]
    tokens: float
    reciprocal: float


def read_questions(path: Path) -> list[Question]:
    """Return the questions that count: not adversarial, and with evidence."""
    with path.open("rb") as source:
        return [
            Question(
                question_id=item["id"],
                participants=item["participants"],
                text=item["question"],
                category=item["category"],
                gold=frozenset(item["evidence"]),
            )
            for item in map(orjson.loads, source)
            if item["category"] != ADVERSARIAL and item["evidence"]
        ]


def score(question: Question, events: Sequence[Json], lengths: dict[str, int]) -> Score:
    """Return the score of an answer's events, best first.

    Args:
        lengths: characters of each event's text, by source_event_key.
    """
    keys = [event["source_event_key"] for event in events]
    gold = question.gold
    first = next((i for i, key in enumerate(keys) if key in gold), None)
    left = TOKENS * 4
    fitting = 0
    for key in keys:
        left -= lengths[key]
        if left < 0:
            break
        fitting += 1
    return Score(
        category=question.category,
        recall={k: len(gold.intersection(keys[:k])) / len(gold) for k in CUTS},
        tokens=len(gold.intersection(keys[:fitting])) / len(gold),
        reciprocal=0.0 if first is None else 1 / (first + 1),
    )


def event_nodes(root: Json) -> list[Json]:
    """Return every event of a tree in the order of the answer."""
    nodes = []
    for child in root["children"]:
        if child["kind"] in ("event", "event_ref"):
            nodes.append(child)
        else:
            nodes += event_nodes(child)
    return nodes


def by_score(events: Sequence[Json]) -> list[Json]:
    """Return events by score, best first, then by event_seq."""
    return sorted(events, key=lambda event: (-event["score"], event["event_seq"]))


class Memory:
    """The tools that the benchmark uses, over one MCP session."""

    def __init__(self, client: mcp.Client, admin: mcp.Client) -> None:
        self._client = client
        self._admin = admin

    async def call(self, tool: str, arguments: Json) -> Json:
        """Return a tool's structured answer.

        Raises:
            RuntimeError: the tool refused.
        """
        client = self._client if path_of(tool) == PATH_OF["core"] else self._admin
        result = await client.call_tool(f"myria.{tool}", arguments)
        answer: Json | None = result.structured_content
        if result.is_error or answer is None:
            raise RuntimeError(f"{tool}: {answer or result.content}")
        return answer

    async def append(self, path: Path) -> int:
        """Append the events of a file in batches; return how many."""
        done = 0
        with path.open("rb") as source, console.meter("appending") as meter:
            for batch in batches(event_arguments(source), BATCH):
                await self.call("append_events", {"events": batch})
                done += len(batch)
                meter.advance(done)
        return done

    async def index(self) -> None:
        """Have everything that was appended indexed.

        Raises:
            RuntimeError: the build failed, or nobody builds.
        """
        await self.call("trigger_build", {"reason": "benchmark"})
        deadline = time.monotonic() + BUILD_WITHIN_S
        while True:
            status = await self.call("get_snapshot_status", {})
            if not (status["tail_events"] or status["building"] or status["queued"]):
                return
            last = status["last_build"] or {}
            if last.get("status") == "failed" or time.monotonic() > deadline:
                raise RuntimeError(f"the memory was not indexed: {status}")
            await asyncio.sleep(0.2)


async def measure(options: Common, data: Path, url: str | None) -> int:
    """Load, index, verify and ask; write the report and return the exit status."""
    report = Report(PART)
    questions = read_questions(data / "questions.jsonl")
    with (data / "events.jsonl").open("rb") as source:
        lengths = {event["source_event_key"]: len(event["payload"]["text"]) for event in event_arguments(source)}
    async with AsyncExitStack() as stack:
        data_dir = None
        if url is None:
            data_dir = options.work_dir / "locomo-data"
            shutil.rmtree(data_dir, ignore_errors=True)
            command = [*MYRIA, "up", "--data-dir", str(data_dir), "--port", "{port}"]
            log = options.work_dir / "log" / "locomo-up.log"
            url = (await stack.enter_async_context(Server(command, env={}, ready="/readyz", log=log))).url
        client = await stack.enter_async_context(mcp.Client(url))
        admin = await stack.enter_async_context(mcp.Client(admin_url(url)))
        memory = Memory(client, admin)
        began = time.monotonic()
        events = await memory.append(data / "events.jsonl")
        appended = time.monotonic()
        await memory.index()
        indexed = time.monotonic()
        report.figures |= {
            "events": events,
            "questions": len(questions),
            "append_s": round(appended - began, 2),
            "index_s": round(indexed - appended, 2),
        }
        if data_dir is not None:
            verified = await run_command([*MYRIA, "verify", "--deep", "--json", "--data-dir", str(data_dir)], env={})
            report.figures["verify"] = orjson.loads(verified.output)
            console.say(f"`myria verify --deep` is clean ({verified.seconds:.1f} s)", "dim")
        await _ask_all(memory, questions, lengths, report)
    return report.finish(options.out)


async def _ask_all(memory: Memory, questions: list[Question], lengths: dict[str, int], report: Report) -> None:
    scores: dict[str, list[Score]] = defaultdict(list)
    took: dict[str, list[float]] = defaultdict(list)
    unlike = 0
    with console.meter("asking", len(questions)) as meter:
        for done, question in enumerate(questions):
            arguments: Json = {"participants": question.participants, "query": question.text}

            async def ask(tool: str, arguments: Json, **more: int) -> Json:
                began = time.perf_counter()
                answer = await memory.call(tool, {**arguments, **more})
                took[tool if not more else f"{tool} {more}"].append((time.perf_counter() - began) * 1000)
                root: Json = answer["root"]
                return root

            first = event_nodes(await ask("query_event_nodes", arguments))
            many = event_nodes(await ask("query_event_nodes", arguments, limit=MOST_EVENTS))
            unlike += [e["event_id"] for e in first] != [e["event_id"] for e in many[: len(first)]]
            scores["query_event_nodes"].append(score(question, many, lengths))
            await ask("query_references", arguments)
            best = by_score(event_nodes(await ask("query_references", arguments, max_nodes=MOST_NODES)))
            scores["query_references"].append(score(question, best, lengths))
            meter.advance(done + 1)
    for tool, tool_scores in scores.items():
        _publish(report, tool, tool_scores)
        recall = report.figures[tool]["all"]["R@10"]
        report.check(f"R@10 by {tool}", recall, LEAST_RECALL, at_least=True)
    report.check("answers whose first events depend on the limit", unlike, 0)
    rows = []
    for name, times in took.items():
        ordered = sorted(times)
        p50, p95 = quantile(ordered, 0.5), quantile(ordered, 0.95)
        report.figures.setdefault("latency_ms", {})[name] = {"p50": round(p50, 2), "p95": round(p95, 2)}
        rows.append((name, number(p50), number(p95)))
    report.table(
        "one question at a time, through the MCP client, as the client sees it", ("", "p50 ms", "p95 ms"), rows
    )


def _publish(report: Report, tool: str, scores: list[Score]) -> None:
    groups = {"all": scores} | {
        name: [result for result in scores if result.category == category] for category, name in CATEGORIES.items()
    }
    rows = []
    for name, group in groups.items():
        if not group:
            continue
        figures = {f"R@{k}": _mean([result.recall[k] for result in group]) for k in CUTS}
        figures[f"RT@{TOKENS}"] = _mean([result.tokens for result in group])
        figures["MRR"] = _mean([result.reciprocal for result in group])
        report.figures.setdefault(tool, {})[name] = {"questions": len(group), **figures}
        rows.append((name, len(group), *(number(value, 3) for value in figures.values())))
    columns = ("questions", "count", *(f"R@{k}" for k in CUTS), f"RT@{TOKENS}", "MRR")
    report.table(tool, columns, rows)


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    options.add_argument("--url", help="an empty memory that runs already, e.g. http://127.0.0.1:8321/mcp")
    given = options.parse_args()
    raise SystemExit(run(measure(common(given), given.data, given.url)))


if __name__ == "__main__":
    main()
