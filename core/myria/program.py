"""How a program of Myria begins and ends at little cost: a short command would spend most of its time on modules."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Import modules within the block without garbage collections; none looks at what was imported afterwards either.

    Modules, classes and functions live until the process ends, so that looking for garbage among them finds nothing.
    numpy is kept from starting a thread for each core: Myria multiplies no matrices.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class QuickEnd:
    """Ends the process as the last of its exit handlers, instead of taking every module apart first.

    Make it before anything else registers an exit handler. Threads are awaited, the other handlers run and output is
    flushed, as ever; the memory is freed by the operating system. A process that ends by an exception, or whose output
    cannot be written, ends the ordinary way.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        """The exit status, once the program has decided on it."""
        atexit.register(self._end)

    def _end(self) -> None:
        if self.status is None:
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            return
        os._exit(self.status)
