"""The command `myria`: the smallest part of it, so that a Ctrl-C before a command begins ends cleanly too."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from myria.program import QuickEnd, importing
from myria_cli.signals import STOPPED_BY_INTERRUPT


def main() -> None:
    """Run the command line of this process."""
    if sys.argv[1:2] == ["hook"]:  # a host waits for it at every turn: it imports next to nothing
        from myria_cli.hosts import hook  # noqa: PLC0415

        raise SystemExit(hook.main(sys.argv[2:]))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    end = QuickEnd()
    with importing():
        from myria_cli.app import application  # noqa: PLC0415 - up to seconds of imports, in which Ctrl-C may come

        app = application(sys.argv[1:])

    # A command that has anything to clean up installs its own handler before it begins (`options.run`).
    try:
        app(prog_name="myria")
    except SystemExit as exited:
        end.status = exited.code if isinstance(exited.code, int) else None
        raise


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End at once: nothing has been started yet. (An exception could surface anywhere.)"""
    os.write(2, b"stopped\n")
    os._exit(STOPPED_BY_INTERRUPT)


if __name__ == "__main__":
    main()
