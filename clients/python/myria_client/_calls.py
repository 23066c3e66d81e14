"""One call of the server: what is sent, what the answer means, and when it may be sent again. Pure."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from myria_client._errors import Invalid

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A call. Each may be sent again: it only reads, has a `key`, or says the same a second time.

    Args:
        read: makes the result of the answer's JSON, which is None where the answer is empty.
        query: parameters; those that are None are left out.
        body: JSON, None for none.
        key: sent as Idempotency-Key: a repeat is answered as the first.
        absent_is_done: whether "not found" is success where an earlier try may have arrived.
        also: statuses that are no refusal.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    body: Any = None
    key: str | None = None
    absent_is_done: bool = False
    also: tuple[int, ...] = ()

    def parameters(self) -> dict[str, str]:
        """Return the parameters of its address."""
        return {name: str(value) for name, value in self.query.items() if value is not None}

    def content(self) -> bytes | None:
        """Return its body.

        Raises:
            Invalid: it holds what JSON cannot say, such as half of a surrogate pair, or not a number.
        """
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except UnicodeEncodeError as error:
            raise Invalid("INVALID_ARGUMENT", "a text holds half of a surrogate pair", 400) from error
        except (ValueError, RecursionError) as error:
            raise Invalid("INVALID_ARGUMENT", f"this is no JSON: {error}", 400) from error


def new_key() -> str:
    """Return a key for a call that nobody has used."""
    return f"py-{secrets.token_hex(16)}"


def given(**fields: Any) -> Json:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def nothing(_answer: Any) -> None:
    """Read an answer that says nothing."""
