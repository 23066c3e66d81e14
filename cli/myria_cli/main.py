"""The command `myria`: the smallest part of it, so that a Ctrl-C while the rest is imported ends cleanly too."""

from __future__ import annotations

import sys

STOPPED_BY_INTERRUPT = 130


def main() -> None:
    """Run the command line of this process."""
    try:
        from myria_cli.app import app  # noqa: PLC0415 - a second of imports, in which Ctrl-C may come

        app(prog_name="myria")
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(STOPPED_BY_INTERRUPT)


if __name__ == "__main__":
    main()
