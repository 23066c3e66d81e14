"""Read the server's own log: what it printed before the log began, and a week of daily files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from myria_embedded.configuration import LOG_FOLDER

LINES = 12
_DAY_S = 86_400


def tail(text: str) -> str:
    """Return the last lines of `text`, indented for quoting."""
    last_lines = [line for line in text.splitlines() if line.strip()][-LINES:]
    return "\n".join(f"    {line}" for line in last_lines) or "    (nothing)"


class ServerLog:
    """The log files of one data directory."""

    def __init__(self, data_dir: Path, cluster: Path) -> None:
        self.first = data_dir / "start.log"
        """Overwritten at each start."""
        self._folder = cluster / LOG_FOLDER

    def marks(self) -> dict[Path, int]:
        """Return how long each daily file is now, in bytes."""
        return {path: path.stat().st_size for path in sorted(self._folder.glob("*.log"))}

    def since(self, marks: Mapping[Path, int]) -> str:
        """Return what was logged since `marks` (sizes by file, from `marks()`); files without a mark are read whole."""
        text = b""
        for path in (self.first, *sorted(self._folder.glob("*.log"))):
            if path.is_file():
                with path.open("rb") as file:
                    file.seek(marks.get(path, 0))
                    text += file.read(1 << 20)
        return text.decode("utf-8", "replace")

    def prune(self) -> None:
        """Delete files older than six days: a server restarted every day never truncates them itself."""
        for path in self._folder.glob("*.log"):
            if time.time() - path.stat().st_mtime > 6 * _DAY_S:
                path.unlink(missing_ok=True)
