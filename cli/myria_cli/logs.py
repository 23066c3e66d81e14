"""Log lines: one JSON object each for machines, short text for people."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from myria.settings import ServiceSettings

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_NOISY = ("asyncio", "httpx", "httpcore", "mcp", "uvicorn.error", "httpx2", "httpcore2")


def configure(service: ServiceSettings, plane: str) -> None:
    """Send this process's log to standard error as the settings say; `plane` names the process in each line."""
    as_text = service.log_format == "text" or (service.log_format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Text(plane) if as_text else _Json(service.name, plane))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(service.log_level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class _Text(logging.Formatter):
    def __init__(self, plane: str) -> None:
        super().__init__()
        self._plane = plane

    def format(self, record: logging.LogRecord) -> str:
        """Return `12:00:01 builder   published snap_...`."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = f"{moment:%H:%M:%S} {self._plane:<9}{level}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    def __init__(self, service: str, plane: str) -> None:
        super().__init__()
        self._service, self._plane = service, plane

    def format(self, record: logging.LogRecord) -> str:
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
