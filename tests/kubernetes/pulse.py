"""Feels the operator's pulse: whether its liveness holds, again and again, and how large it is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx


def resident_kb(pid: int) -> int:
    """Return a process's resident memory, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


class Pulse:
    """Asks for liveness four times a second."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/healthz"
        self.answers: Counter[Any] = Counter()

    @contextmanager
    def felt(self) -> Iterator[Pulse]:
        """Ask for the length of the block."""
        stop = threading.Event()

        def ask() -> None:
            while not stop.wait(0.25):
                try:
                    self.answers[httpx.get(self.url, timeout=60, trust_env=False, verify=False).status_code] += 1
                except httpx.TransportError as error:
                    self.answers[type(error).__name__] += 1

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join(65)
