"""Child processes of `myria up`."""

from __future__ import annotations

import os
import signal
import sys

from myria_cli.children import LOW_PRIORITY, Child
from tests.support.patience import until


async def test_a_child_that_overran_leaves_the_processors_to_others() -> None:
    """Its priority is lowered and never raised; a child that has ended is nobody's to change."""
    child = Child("waiting", [sys.executable, "-c", "import sys; sys.stdin.read()"], environment=os.environ)
    child.lower_priority()
    await child.start()
    try:
        assert child.pid is not None
        child.lower_priority()
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == max(ours, LOW_PRIORITY)
    finally:
        await child.stop(5.0)
    child.lower_priority()


async def test_the_stderr_tail_of_a_child_are_kept() -> None:
    """Also where it is killed, and what it started lives on with its standard error."""
    starts_another = (
        "import subprocess, sys, time; sys.stderr.write('x' * 10_000 + '\\nthe disk is full\\n'); sys.stderr.flush(); "
        "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']); sys.stdin.read()"
    )
    child = Child("speaking", [sys.executable, "-c", starts_another], environment=os.environ)
    await child.start()
    try:
        await until(lambda: "full" in child.stderr_tail, "the child's last words")
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
    finally:
        await child.stop(5.0)
    assert child.stderr_tail.splitlines()[-1] == "the disk is full"
