"""What can go wrong.

MyriaClientError
+-- Unreachable           no answer came: the server is away, or the network is
+-- Unreadable            an answer came that is none of Myria's: another program answers there, or a proxy
+-- Refused               the server answered that it does not do this; `code` says why
    +-- Invalid           ... as it was asked: change the call
    +-- NotAllowed        ... for this key
    +-- NotFound          ... because it is not there, or not for this key
    +-- Conflict          ... because of what is kept already
    |   +-- Duplicate     ... the same memory was kept a while ago
    +-- Busy              ... now: the same call may succeed later
"""

from __future__ import annotations


class MyriaClientError(Exception):
    """Every error of this package."""


class Unreachable(MyriaClientError):
    """No answer came, also when tried again. Whether the call took effect is unknown: it is safe to repeat it."""


class Unreadable(MyriaClientError):
    """What answered is no Myria, or one whose answers this version of the package does not know."""


class Refused(MyriaClientError):
    """The server refused a call.

    Args:
        code: stable, e.g. `note_not_found`, `PERMISSION_DENIED`; docs/errors.md lists them.
        message: what is wrong, and what to do.
        status: of the HTTP answer.
        hint: what to do, where the server says it beside the message.
        field: which field of the call is meant.
        index: which memory of several is meant.
        memory_id: of a duplicate, the memory that stands.
        retry_after_s: how long the server wants to be left alone, in seconds.
    """

    def __init__(
        self,
        code: str,
        message: str,
        status: int,
        *,
        hint: str | None = None,
        field: str | None = None,
        index: int | None = None,
        memory_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}" + (f" ({hint})" if hint else ""))
        self.code = code
        self.message = message
        self.status = status
        self.hint = hint
        self.field = field
        self.index = index
        self.memory_id = memory_id
        self.retry_after_s = retry_after_s


class Invalid(Refused):
    """The call is not one that the server takes."""


class NotAllowed(Refused):
    """The key is missing, unknown, or does not allow this."""


class NotFound(Refused):
    """What was named is not there; what this key may not see is not there either."""


class Conflict(Refused):
    """What is kept already does not allow this."""


class Duplicate(Conflict):
    """The same memory was kept within the server's window; nothing was kept."""


class Busy(Refused):
    """The server could not do this now, also when tried again."""
