"""Values that must not be seen, and text made safe to show.

A `Secret` never shows itself: not by repr, str, format, JSON or pickle. A `Redactor` removes every known secret from
outgoing text, in each encoding in which a provider, a library or a log may repeat it.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

import orjson

HIDDEN = "***"
"""What stands in place of a secret."""

SHORTEST = 6
"""Characters of the shortest secret that is redacted: shorter ones would also match parts of innocent words."""


_SCHEMES = frozenset({"bearer", "basic", "digest", "apikey", "api-key"})


class Secret:
    """A text that only `reveal` gives away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text itself, for the one place that sends it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, _: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")


class Redactor:
    """Replaces known secrets by `***` in text and JSON."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        writings = {writing for secret in secrets for writing in _encodings(secret.reveal())}
        longest_first = sorted(writings, key=lambda writing: (-len(writing), writing))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if writings else None

    def __repr__(self) -> str:
        return "Redactor()"

    def text(self, text: str) -> str:
        """Return text without any secret."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """Return JSON without any secret, in keys as in values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value


def _encodings(secret: str) -> set[str]:
    """Return each encoding of a secret, and of its parts (`Bearer x`): plain, JSON, URL, hexadecimal and base64."""
    writings: set[str] = set()
    for part in {secret, secret.strip(), *secret.split()}:
        if len(part) < SHORTEST or part.lower() in _SCHEMES:
            continue
        raw = part.encode("utf-8", "surrogatepass")
        writings |= {part, quote(raw), quote(raw, safe=""), quote_plus(raw), raw.hex()}
        writings |= {
            base64.b64encode(raw).decode().rstrip("="),
            base64.urlsafe_b64encode(raw).decode().rstrip("="),
        }
        try:
            writings.add(orjson.dumps(part).decode()[1:-1])
        except TypeError:
            continue  # a lone surrogate: no JSON can repeat it
        writings.add(json.dumps(part)[1:-1])
    return writings
