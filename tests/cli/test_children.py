"""Child processes of `myria up`."""

from __future__ import annotations

import os
import sys

from myria_cli.children import LOW_PRIORITY, Child


async def test_a_child_that_overran_leaves_the_processors_to_others() -> None:
    """Its priority is lowered and never raised; a child that has ended is nobody's to change."""
    child = Child("waiting", [sys.executable, "-c", "import sys; sys.stdin.read()"], environment={})
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
