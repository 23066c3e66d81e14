"""The processes that are measured: Myria's server and builder, the bare endpoint; and what they cost."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from benchmarks.statements import statement

ROOT = Path(__file__).resolve().parents[1]
MYRIA = (sys.executable, "-m", "myria_cli.main")
"""The command `myria` of this Python."""

READY_WITHIN_S = 60.0
_POLL_S = 0.05
_CPU_CLOCK = 2
"""As in Linux's `clock_getcpuclockid`."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used so far: CPU seconds, resident memory now and at its highest, in MiB."""

    cpu_s: float
    rss_mib: float
    peak_mib: float


def usage(pid: int) -> Usage:
    """Return what a process has used.

    Raises:
        OSError: it has ended.
    """
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        if ":" in line
    )
    return Usage(
        cpu_s=(int(words[11]) + int(words[12])) / _TICKS,
        rss_mib=_kib(status.get("VmRSS")) / 1024,
        peak_mib=_kib(status.get("VmHWM")) / 1024,
    )


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, user and system, in seconds: exact, where `usage` counts in ticks.

    Raises:
        OSError: it has ended.
    """
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


async def backends_cpu(connection: asyncpg.Connection[asyncpg.Record]) -> dict[int, float]:
    """Return the processor time in seconds of PostgreSQL's processes that serve others of this database, by pid."""
    return {row["pid"]: cpu_seconds(row["pid"]) for row in await connection.fetch(statement("backends"))}


def used_since(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    """Return what processes used between two looks at them, in seconds; those that have ended meanwhile not."""
    return sum(cpu_s - before.get(pid, 0.0) for pid, cpu_s in now.items())


def _kib(value: str | None) -> int:
    return int(value.split()[0]) if value else 0


def free_port() -> int:
    """Return a loopback port that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """A server process on a loopback port, from start to end. An async context manager.

    Args:
        command: started in a session of its own; `{port}` in an argument is replaced by the port. Its standard input
            closes when this process is gone, however it ended.
        env: added to the environment; connection strings go this way, where `ps` does not show them.
        ready: the path that answers 200 once it serves.
        log: what it writes goes there.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], ready: str, log: Path) -> None:
        self.port = free_port()
        self._command = [part.replace("{port}", str(self.port)) for part in command]
        self._env = env
        self._ready = f"http://127.0.0.1:{self.port}{ready}"
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        """Where it serves MCP."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def __aenter__(self) -> Server:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=ROOT,
                env={**os.environ, **self._env},
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            await self._wait_ready()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + READY_WITHIN_S
        while not await asyncio.to_thread(_answers, self._ready):
            if self._process.returncode is not None or time.monotonic() > deadline:
                tail = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
                raise RuntimeError(f"{' '.join(self._command)} does not serve:\n{tail}")
            await asyncio.sleep(_POLL_S)

    async def _end(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 20.0)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:  # noqa: S310 - a URL of ours
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def myria_server(dsn: str, log: Path, *, code: Mapping[str, str] | None = None, **settings: str) -> Server:
    """Return `myria serve` on a database, not started yet; no builds happen beside it.

    Args:
        dsn: the database, as serving connects to it.
        log: what it writes goes there.
        code: the variables by which Python takes other code than this.
        settings: by environment variable without `MYRIA_`, e.g. `RETRIEVAL_CACHE_BYTES="1000000"`.
    """
    env = {**(code or {}), "MYRIA_POSTGRES_DSN": dsn, **{f"MYRIA_{name}": value for name, value in settings.items()}}
    return Server([*MYRIA, "serve", "--port", "{port}", "--with-parent"], env=env, ready="/readyz", log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended: its wall time, CPU time and peak memory, exit status and standard output."""

    seconds: float
    cpu_s: float
    peak_mib: float
    status: int
    output: str


async def run_command(command: Sequence[str], *, env: Mapping[str, str], log: Path | None = None) -> Ran:
    """Run a command to its end and measure it. Standard error passes through, or goes to `log`.

    Raises:
        RuntimeError: it failed.
    """
    began = time.monotonic()
    errors = log.open("ab") if log else None
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    finally:
        if errors:
            errors.close()
    last = Usage(cpu_s=0.0, rss_mib=0.0, peak_mib=0.0)

    async def watch() -> None:
        nonlocal last
        while True:
            with suppress(OSError):
                seen = usage(process.pid)
                last = seen if seen.peak_mib else last  # an ended process (zombie) reports no memory
            await asyncio.sleep(_POLL_S)

    watcher = asyncio.create_task(watch())
    try:
        output, _ = await process.communicate()
    finally:
        watcher.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()
    ran = Ran(
        seconds=time.monotonic() - began,
        cpu_s=last.cpu_s,
        peak_mib=last.peak_mib,
        status=process.returncode or 0,
        output=output.decode("utf-8", "replace"),
    )
    if ran.status:
        raise RuntimeError(f"{' '.join(command)} ended with status {ran.status}:\n{ran.output[-3000:]}")
    return ran
