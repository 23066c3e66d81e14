"""The options that the parts share."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

FULL_SIZES = (10_000, 100_000, 1_000_000)
SMALL_SIZES = (10_000,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """Where a part works, and how much it does.

    `work_dir` holds databases and generated events, and is kept between runs; `out` gets the JSON reports. `rebuild`
    measures full builds anew though the databases are there; `as_built` takes them though other code built them.
    """

    work_dir: Path
    out: Path
    synth: Path | None
    sizes: tuple[int, ...]
    full: bool
    rebuild: bool
    as_built: bool


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the shared options."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--work-dir",
        type=Path,
        default=user_cache_path("myria") / "benchmarks",
        help="databases and generated events, kept between runs (default: %(default)s)",
    )
    made.add_argument(
        "--out", type=Path, default=Path(__file__).with_name("out"), help="JSON reports (default: %(default)s)"
    )
    made.add_argument("--synth", type=Path, help="another generator of events (default: benchmarks/synthetic.py)")
    made.add_argument("--sizes", type=_sizes, help="events, e.g. 1e4,1e5 (default: 1e4; with --full up to 1e6)")
    made.add_argument(
        "--full",
        action="store_true",
        default=os.environ.get("FULL", "0") not in ("", "0"),
        help="every size and every round (or FULL=1); takes an hour and ~15 GB",
    )
    made.add_argument("--rebuild", action="store_true", help="measure full builds anew though the databases are there")
    made.add_argument("--as-built", action="store_true", help="take built databases though other code built them")
    return made


def common(options: argparse.Namespace) -> Common:
    """Return the shared options of a command line."""
    return Common(
        work_dir=options.work_dir.expanduser().absolute(),
        out=options.out.expanduser().absolute(),
        synth=options.synth and options.synth.expanduser().absolute(),
        sizes=options.sizes or (FULL_SIZES if options.full else SMALL_SIZES),
        full=options.full,
        rebuild=options.rebuild,
        as_built=options.as_built,
    )


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a part to its end and return its exit status; Ctrl-C and SIGTERM end what it started, too."""

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return asyncio.run(main())


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(float(part)) for part in text.split(",")}))
