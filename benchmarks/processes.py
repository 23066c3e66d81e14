"""The processes that are measured: servers, builders and other commands; and what they cost."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MYRIA = (sys.executable, "-m", "myria_cli.main")
"""The command `myria` of this Python."""

READY_WITHIN_S = 60.0
_POLL_S = 0.05
_CPU_CLOCK = 2
"""As in Linux's `clock_getcpuclockid`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The resident memory of a process now and at its highest, in MiB."""

    rss_mib: float
    peak_mib: float


def usage(pid: int) -> Usage:
    """Return what memory a process uses.

    Raises:
        OSError: it has ended.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if "kB" in value}
    return Usage(rss_mib=kib.get("VmRSS", 0) / 1024, peak_mib=kib.get("VmHWM", 0) / 1024)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, user and system, in seconds.

    Raises:
        OSError: it has ended.
    """
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


class Server:
    """A server process on a loopback port, from start to end. An async context manager.

    Args:
        command: started in a session of its own; `{port}` in an argument is replaced by the port. Its standard input
            closes when this process is gone, however it ended.
        env: added to the environment; connection strings go this way, where `ps` does not show them.
        log: what it writes goes there.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        self._command = [part.replace("{port}", str(self.port)) for part in command]
        self._env = env
        self._ready = f"http://127.0.0.1:{self.port}/readyz"
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

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
            deadline = time.monotonic() + READY_WITHIN_S
            while not await asyncio.to_thread(_answers, self._ready):
                if self._process.returncode is not None or time.monotonic() > deadline:
                    tail = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
                    raise RuntimeError(f"{' '.join(self._command)} does not serve:\n{tail}")
                await asyncio.sleep(_POLL_S)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
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


def myria_server(dsn: str, log: Path, *, code: Mapping[str, str] | None = None, **settings: str) -> Server:
    """Return `myria serve` on a database, not started yet; no builds happen beside it.

    Args:
        dsn: the database, as serving connects to it.
        log: what it writes goes there.
        code: the variables by which Python takes other code than this.
        settings: by environment variable without `MYRIA_`, e.g. `RETRIEVAL_CACHE_BYTES="1000000"`.
    """
    env = {**(code or {}), "MYRIA_POSTGRES_DSN": dsn, **{f"MYRIA_{name}": value for name, value in settings.items()}}
    return Server([*MYRIA, "serve", "--port", "{port}", "--with-parent"], env=env, log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended: its wall time, CPU time and peak memory, those of processes it waited for included."""

    seconds: float
    cpu_s: float
    peak_mib: float


async def run_command(command: Sequence[str], *, env: Mapping[str, str], log: Path) -> Ran:
    """Run a command to its end and measure it; what it writes goes to a file.

    Raises:
        RuntimeError: it failed.
    """
    began = time.monotonic()
    process = _started(command, env, log)
    try:
        # `wait4` alone tells what exactly this child used
        _, status, used = await asyncio.to_thread(os.wait4, process.pid, 0)
    except asyncio.CancelledError:
        process.kill()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}; see {log}")
    return Ran(seconds=time.monotonic() - began, cpu_s=used.ru_utime + used.ru_stime, peak_mib=used.ru_maxrss / 1024)


def _started(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:  # noqa: S310 - a URL of ours
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
