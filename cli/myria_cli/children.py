"""Child processes that never outlive their parent.

A child has a session of its own, so that a Ctrl-C at the terminal reaches the parent alone, which then stops its
children in order. Its standard input is a pipe whose other end only the parent holds: when the parent ends, in whatever
way, the pipe closes, and the child stops itself. So no orphan is left, on any operating system.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import typer

RESTART_DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Waits before a child is started again; they start over once a child has lived for `LIVED_S`."""

LIVED_S = 3.0

LOW_PRIORITY = 10
"""Niceness of a child that leaves the processors to others."""

TAIL_BYTES = 8_192
"""How much of a child's standard error is kept to say why it died."""

TAIL_WAIT_S = 1.0
"""Longest wait for the rest of a dead child's standard error."""

LAST_GRACE_S = 15.0
"""Seconds a child gets to stop by itself after its parent has gone."""

WITH_PARENT = "--with-parent"
"""The hidden option of a command that stops when its standard input closes."""

WithParent = Annotated[bool, typer.Option(WITH_PARENT, hidden=True)]

_log = logging.getLogger("myria.children")


def command_line(*arguments: str) -> list[str]:
    """Return how to run `myria` with these arguments in this same environment."""
    return [sys.executable, "-m", "myria_cli.main", *arguments]


def stop_with_parent() -> None:
    """Watch standard input, and stop this process when it closes: by SIGTERM, or by force after `LAST_GRACE_S`."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def how_it_ended(status: int) -> str:
    """Put an exit status into words; a negative one is the number of a signal."""
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


class Child:
    """One child process. Its output goes to our standard error, and `stderr_tail` keeps the end, to say why it died.

    Args:
        name: what messages call it.
        environment: the child's whole environment.
        descriptors: the file descriptors that it inherits.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str], descriptors: Sequence[int] = ()
    ) -> None:
        self.name = name
        self._command = list(command)
        self._environment = dict(environment)
        self._descriptors = tuple(descriptors)
        self._stderr_closed = asyncio.Event()
        self._tail = b""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it lives."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the process."""
        # Not asyncio's pipe: with that, asyncio counts a process as ended only once all holders of the pipe have ended,
        # and processes that the child started may live on.
        self._tail = b""
        self._stderr_closed.clear()
        read_end, write_end = os.pipe()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=2,  # our standard output may belong to a client (stdio)
            stderr=write_end,
            env=self._environment,
            pass_fds=self._descriptors,
            start_new_session=True,
        )
        os.close(write_end)
        asyncio.get_running_loop().add_reader(read_end, self._read_stderr, read_end)

    def _read_stderr(self, pipe: int) -> None:
        """Pass a piece of the child's standard error on to ours, and keep the tail; at its end, close the pipe."""
        piece = os.read(pipe, 65_536)
        self._tail = (self._tail + piece)[-TAIL_BYTES:]
        if piece:
            with suppress(OSError):
                sys.stderr.buffer.write(piece)
                sys.stderr.flush()
        else:
            asyncio.get_running_loop().remove_reader(pipe)
            os.close(pipe)
            self._stderr_closed.set()

    @property
    def stderr_tail(self) -> str:
        """The end of what the child wrote to its standard error."""
        return self._tail.decode("utf-8", "replace")

    async def wait(self) -> int:
        """Return the exit status once the process has ended; negative for the signal that ended it."""
        if self._process is None:
            return 0
        status = await self._process.wait()
        with suppress(TimeoutError):  # processes that it started may keep the pipe open
            async with asyncio.timeout(TAIL_WAIT_S):
                await self._stderr_closed.wait()
        return status

    def lower_priority(self) -> None:
        """Lower the process's priority, so that others get the processors first."""
        pid = self.pid
        if pid is not None:
            with suppress(OSError):
                niceness = max(LOW_PRIORITY, os.getpriority(os.PRIO_PROCESS, pid))
                os.setpriority(os.PRIO_PROCESS, pid, niceness)

    async def stop(self, patience_s: float) -> None:
        """End the process: SIGTERM, and SIGKILL after `patience_s` seconds."""
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(patience_s):
                    await process.wait()
            except TimeoutError:
                _log.warning("%s does not stop; ending it", self.name, extra={"action": "child_killed"})
                process.kill()
                await process.wait()


async def keep_running(child: Child, *, patience_s: float, on_exit: Callable[[int], None] = lambda _: None) -> None:
    """Run a child and start it again whenever it ends, with back-off, until cancelled; then stop it.

    Args:
        patience_s: seconds it gets to stop.
        on_exit: called with each exit status; an exception from it ends the supervision.
    """
    failures = 0
    try:
        while True:
            started = time.monotonic()
            await child.start()
            status = await child.wait()
            on_exit(status)
            if time.monotonic() - started > LIVED_S:
                failures = 0
            delay = RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S) - 1)]
            failures += 1
            extra = {"action": "child_died", "restart_in_s": delay}
            _log.warning("%s %s; starting it again", child.name, how_it_ended(status), extra=extra)
            await asyncio.sleep(delay)
    finally:
        await asyncio.shield(child.stop(patience_s))
