"""The command `myria`: the smallest part of it, so that a Ctrl-C while the rest is imported ends cleanly too."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line of this process."""
    if sys.argv[1:2] == ["hook"]:  # a host waits for it at every turn: it imports next to nothing
        from myria_cli.hosts import hook

        raise SystemExit(hook.main(sys.argv[2:]))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    gc.disable()  # imports make hardly any garbage, and to look for it is a fifth of a start; `options.run` enables it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start a thread per core; Myria multiplies little
    from myria_cli.app import app

    # A command that has anything to clean up installs its own handler before it begins (`options.run`).
    app(prog_name="myria")


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End at once: nothing has been started yet. (An exception could surface anywhere.)"""
    os.write(2, b"stopped\n")
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
