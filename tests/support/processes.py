"""Start programs in tests, and be sure that they end: each by its own process id."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from tests.support.counts import SOAK
from tests.support.forking import Forked
from tests.support.guardian import started
from tests.support.patience import PATIENCE_S

POLL_S, LONGEST_POLL_S = 0.02, 0.25

UNROUTED = {"MYRIA_MCP_LINGER_S": "0"}
"""Nothing routes requests to a server that is told to end, unless a test says so: it ends at once."""

_KEPT: list[socket.socket] = []


def free_port() -> int:
    """Return a loopback TCP port that nobody uses, for a program that will listen to it.

    It stays bound here, without being listened to, so that Linux gives it to nobody else; a program that sets
    SO_REUSEADDR, as servers do, can listen to it all the same.
    """
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    _KEPT.append(one)
    port: int = one.getsockname()[1]
    return port


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0, what: str = "the condition") -> None:
    """Return once `condition()` is true; fail the test when it does not come true.

    `timeout_s` is what a machine with nothing else to do may take: a busy one gets three times that, and PATIENCE_S in
    any case. A moment in which this process stood still counts as a second at most. A condition that takes long is
    asked less often, so that asking is a twentieth of the time and leaves the machine to what is waited for.
    """
    patience_s = max(PATIENCE_S, 3 * timeout_s)
    spent, pause, last = 0.0, 0.0, time.monotonic()
    while not condition():
        now = time.monotonic()
        asking = now - last - pause
        spent, last = spent + min(now - last, 1.0), now
        if spent > patience_s:
            raise AssertionError(f"{what} did not come true within {patience_s} s")
        pause = min(LONGEST_POLL_S, max(POLL_S, 19 * asking))
        time.sleep(pause)


class Guardian:
    """The process that cleans up when this one is killed."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("guardian.py")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        self._process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def tell(self, line: str) -> None:
        """Hand over one line of its protocol."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Let it tidy, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


class Spawned:
    """A program under test, in a session of its own; its output is kept in a file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None,
        cwd: Path | None,
        stdin: int | None = None,
        forked: bool = False,
    ) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        words = [str(part) for part in command]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **UNROUTED, **(env or {})}
        self.process: subprocess.Popen[bytes]
        if forked:
            fork = Forked(words, env=environment, cwd=cwd, output=self._output.fileno())
            self.process = cast("subprocess.Popen[bytes]", fork)
        else:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is its group's as well."""
        return self.process.pid

    def output(self) -> str:
        """Return everything it has printed so far, standard error included."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode("utf-8", "replace")

    def wait_for(self, pattern: str, timeout_s: float = 180.0) -> re.Match[str]:
        """Return the first match of `pattern` in its output; fail when it ends, or too much time passes, without."""
        deadline = time.monotonic() + max(PATIENCE_S, 3 * timeout_s)  # as in wait_until
        while True:
            ended = self.process.poll() is not None
            if found := re.search(pattern, self.output(), re.MULTILINE):
                return found
            if ended or time.monotonic() > deadline:
                raise AssertionError(
                    f"{pattern!r} not printed (exit status {self.process.returncode}):\n{self.output()[-4000:]}"
                )
            time.sleep(POLL_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 180.0) -> int:
        """Return its exit status; fail when it does not end in time, or PATIENCE_S if that is longer."""
        try:
            return self.process.wait(max(PATIENCE_S, timeout_s))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.output()[-4000:]}") from None

    def kill(self) -> None:
        """Kill it with everything in its group: nothing can be tidied up (kill -9)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, patience_s: float = 10.0) -> None:
        """Ask it to end, then kill what is left of its group; for the end of a test."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)
        self.kill()
        self._output.close()


class Spawner:
    """Called with a command, starts it; ends everything it started when the test is over."""

    def __init__(self, guardian: Guardian) -> None:
        self._guardian = guardian
        self._started: list[Spawned] = []

    def __call__(
        self,
        *command: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
    ) -> Spawned:
        """Start `command` with our environment plus `env`."""
        return self._kept(Spawned(command, env=env, cwd=cwd, stdin=stdin))

    def python(self, *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Spawned:
        """Start this Python with `arguments`, e.g. `"-m", "myria_cli.main"`."""
        return self(sys.executable, *arguments, env=env, cwd=cwd)

    def myria(self, *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Spawned:
        """Start a command of `myria`, such as "operate"; but for soak runs it is forked, with all of it imported."""
        if SOAK or "PYTHONPATH" in (env or {}):
            return self.python("-m", "myria_cli.main", *arguments, env=env, cwd=cwd)
        return self._kept(Spawned(arguments, env=env, cwd=cwd, forked=True))

    def _kept(self, one: Spawned) -> Spawned:
        self._started.append(one)
        self._guardian.tell(f"process {one.pid} {started(one.pid)}")
        return one

    def end_all(self) -> None:
        """End what still runs, last started first."""
        for one in reversed(self._started):
            one.end()
            self._guardian.tell(f"done {one.pid}")
        self._started.clear()
