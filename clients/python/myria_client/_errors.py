"""What can go wrong.

MyriaClientError
+-- Unreachable     no answer came: the server is away, or the network is
+-- Refused         the server answered that it does not do this; `code` says why
    +-- Busy        ... now: the same call may succeed later
"""

from __future__ import annotations


class MyriaClientError(Exception):
    """Every error of this package."""


class Unreachable(MyriaClientError):
    """No answer came, also when tried again. Whether the call took effect is unknown: it is safe to repeat it."""


class Refused(MyriaClientError):
    """The server refused a call.

    Args:
        code: stable, e.g. `INVALID_ARGUMENT`, `PERMISSION_DENIED`.
        message: what is wrong, and what to do.
        status: of the HTTP answer.
    """

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class Busy(Refused):
    """The server could not do this now, also when tried again."""
