"""Measure the cost model: all parts one after the other, and one table of what was promised and measured.

By default small: 10,000 events and a few rounds, in minutes. `--full` (or FULL=1) takes every size and round.
"""

from __future__ import annotations

from benchmarks import appends, attacks, builds, console, console_browser, reads
from benchmarks.options import Part, parser, run_parts

PARTS: dict[str, Part] = {
    part.PART: part.measure for part in (appends, reads, builds, console, console_browser, attacks)
}


def main() -> None:
    """Run the parts; exit 1 when a promise is broken."""
    options = parser(__doc__)
    options.add_argument("--only", action="append", choices=tuple(PARTS), help="this part alone; repeat for several")
    given = options.parse_args()
    run_parts({name: part for name, part in PARTS.items() if name in (given.only or PARTS)}, given)


if __name__ == "__main__":
    main()
