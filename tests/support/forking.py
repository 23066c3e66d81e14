"""Start `myria` as a process that has it imported: forked from a server that has done nothing else.

A start from nothing takes one or two seconds of CPU, and tests on Kubernetes start more than a hundred operators and
builders. `make soak` starts each of them from nothing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait as wait_for_one
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "myria_cli.commands.planes",
        "myria_cli.commands.cluster",
        "myria_builder",
        "myria_operator.app",
        "myria_server.app",
    ]
)
_LOCK = threading.Lock()
"""multiprocessing looks after its children at every start, and hears only once how one has ended."""


class Forked:
    """A running `myria`, first of a session of its own; as much of a `subprocess.Popen` as tests use.

    Args:
        arguments: what follows `myria` on its command line.
        env: its whole environment.
        cwd: its folder; by default that of this process.
        output: the open file that it writes to.
        enter: what it calls first, to be somewhere else.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        output: int,
        enter: Callable[[], None] | None = None,
    ) -> None:
        where = (str(cwd or Path.cwd()), f"/proc/{os.getpid()}/fd/{output}")
        self._process = _SERVER.Process(target=_run, args=(list(arguments), dict(env), *where, enter))
        with _LOCK:
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        with contextlib.suppress(ProcessLookupError):
            while self.poll() is None and os.getpgid(self.pid) != self.pid:
                time.sleep(0.001)

    @property
    def returncode(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""
        with _LOCK:
            return self._process.exitcode

    def poll(self) -> int | None:
        """Return the same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status once it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        wait_for_one([self._process.sentinel], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired("myria", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _run(
    arguments: list[str], environment: dict[str, str], folder: str, output: str, enter: Callable[[], None] | None
) -> None:
    """Become the command, in the process that was forked for it."""
    written = os.open(output, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(written, number)
    os.close(written)
    os.setsid()  # after it, whoever started this may close the file, or kill the group
    if enter is not None:
        enter()
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.stdout, sys.stderr = (open(number, "w", 1, "utf-8", "backslashreplace") for number in (1, 2))  # noqa: SIM115 - open until the end
    sys.argv = ["myria", *arguments]
    from myria_cli.main import main

    main()
