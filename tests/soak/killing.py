"""Killing the processes of `myria up` at random: PostgreSQL, one of its backends, server, builder, or all of them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path

VICTIMS = ("postgres", "server", "builder", "backend", "all")


async def kill(victim: str, up: int, data_dir: Path, rng: random.Random) -> bool:
    """Kill -9 a victim once it is there; False when none shows up in time."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        pids = _pids(victim, up, data_dir, rng)
        for pid in list(pids):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pids.remove(pid)
        if pids:
            return True
        await asyncio.sleep(0.05)
    return False


def _pids(victim: str, up: int, data_dir: Path, rng: random.Random) -> list[int]:
    children = {pid: _command(pid) for pid in _children(up)}
    if victim == "server":
        return [pid for pid, command in children.items() if "serve" in command]
    if victim == "builder":
        return [pid for pid, command in children.items() if "build" in command]
    if victim == "all":
        return list(children)
    try:
        postmaster = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return []
    if victim == "postgres":
        return [postmaster]
    backends = [pid for pid in _children(postmaster) if "myria_" in " ".join(_command(pid))]
    return [rng.choice(backends)] if backends else []


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if words[1] == str(pid) and words[0] != "Z":
                found.append(int(entry.name))
    return sorted(found)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []
