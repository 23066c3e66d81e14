"""Log lines: one JSON object each for machines, short text for people; and a file of them with rotation."""

from __future__ import annotations

import fcntl
import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from pathlib import Path
from typing import Any

from myria.access.secrets import hide_keys
from myria.errors import ConfigurationError
from myria.settings import LogSettings, ServiceSettings

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_NOISY = ("asyncio", "httpx", "httpcore", "mcp", "uvicorn.error", "httpx2", "httpcore2")


def configure(service: ServiceSettings, plane: str, log: LogSettings) -> None:
    """Send this process's log to standard error, and to a file, as the settings say.

    Args:
        plane: names the process in each line.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    as_text = service.log_format == "text" or (service.log_format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(service.name, plane, as_text=as_text))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    if log.file is not None:
        try:
            file_handler = SharedFile(log.file, maxBytes=log.file_bytes, backupCount=log.file_count, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"the log file {log.file} cannot be written: {error.strerror}; mend log.file", field="log.file"
            ) from error
        file_handler.setFormatter(Lines(service.name, plane, as_text=False))
        root.addHandler(file_handler)
    root.setLevel(service.log_level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class SharedFile(RotatingFileHandler, WatchedFileHandler):
    """A rotating log file for several processes: one of them at a time writes a line, or rotates the file.

    A lock on `FILE.lock` makes them take turns; a process whose file was rotated by another continues in the new one.
    """

    def __init__(self, filename: str, **options: Any) -> None:
        super().__init__(filename, **options)
        self.dev = self.ino = -1  # RotatingFileHandler does not call WatchedFileHandler's own initialisation
        self._guard = Path(f"{self.baseFilename}.lock").open("a", encoding="utf-8")  # noqa: SIM115 - closed in close()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX)
            try:
                self.reopenIfNeeded()
                super().emit(record)
            finally:
                fcntl.flock(self._guard, fcntl.LOCK_UN)
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        """Close the file and its lock."""
        super().close()
        self._guard.close()


class Lines(logging.Formatter):
    """Formats records as text or JSON, with message, fields and trace; keys are masked down to their ids."""

    def __init__(self, service: str, plane: str, *, as_text: bool) -> None:
        super().__init__()
        self._service, self._plane = service, plane
        self._line = self._text if as_text else self._json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return hide_keys(self._line(record))

    def _text(self, record: logging.LogRecord) -> str:
        """Return `12:00:01 builder   published snap_...`."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = f"{moment:%H:%M:%S} {self._plane:<9}{level}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    def _json(self, record: logging.LogRecord) -> str:
        """Return one line of JSON with what the caller gave as `extra`."""
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "plane": self._plane,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)
