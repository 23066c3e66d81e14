"""Run one system over one memory: a job as JSON on standard input, what came of it as JSON in the job's file.

    python -m benchmarks.peer_systems < JOB

A job has `system`, `folder`, `dsns`, `vectors` (an .npy file for its `texts`, or null), `events`, `questions`, `out`.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peer_systems.systems import SYSTEMS, Event, Place


def main() -> None:
    """Keep the events, ask the questions, and write answers, times and memory."""
    job: dict[str, Any] = json.load(sys.stdin)
    vectors: dict[str, Any] = {}
    if job["vectors"] is not None:
        import numpy as np  # noqa: PLC0415 - not every system needs it

        vectors = dict(zip(job["texts"], np.load(job["vectors"]), strict=True))
    events = [Event(**event) for event in job["events"]]
    before = resident_mib()
    make = SYSTEMS[job["system"]]
    system = make(Place(folder=Path(job["folder"]), dsns=job["dsns"], vectors=vectors))
    began = time.perf_counter()
    system.add(events)
    kept = time.perf_counter() - began
    answers, took = [], []
    for question in job["questions"]:
        began = time.perf_counter()
        answers.append(system.search(question["text"], question["conversation"], question["participants"]))
        took.append(time.perf_counter() - began)
    grown = resident_mib() - before
    system.close()
    written = {"answers": answers, "kept_s": kept, "took_s": took, "grown_mib": grown, "version": _version(system)}
    Path(job["out"]).write_text(json.dumps(written), encoding="utf-8")


def resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def _version(system: Any) -> str:
    try:
        return version(system.package) if system.package else ""
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
