"""What a provider says of a failure in its own words, made safe to show to whoever looks after the memory.

Its words reach logs, `status` and a resource's conditions, which more people read than the memory itself. So
credentials are taken out, and words that quote what was sent are left out whole: they may hold what somebody told the
memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from myria.llm.secrets import HIDDEN, Redactor
from myria.log.redaction.redactor import without_credentials

_CHARACTERS: Final = 300
_QUOTED: Final = 24
"""Letters and digits in a row, spaces apart, that make words a quotation of what was sent."""

_READ: Final = 65_536
_OURS: Final = frozenset({"model", "tools", "response_format", "tool_choice"})
"""Fields of a request that hold nothing of the memory: a wrong model's name shall be told."""

_MASKED = re.compile(r"\S*\*{2,}\S*|[\w-]{2,}(?:\.{3}|…)[\w-]{2,}")
"""A key of which the provider itself shows a part: `sk-ab***yz`, `sk-ab...yz`."""


def said(body: bytes, sent: bytes, redactor: Redactor) -> str:
    """Return what the body of a refusal says, on one line; "" where it says nothing that may be shown.

    Args:
        body: what the provider answered: JSON as OpenAI, Ollama, vLLM or Google write it, or text.
        sent: the JSON of the request.
        redactor: knows the credentials of the request.
    """
    text = " ".join(_message(body[:_READ]).split())
    if not text.isprintable() or "\ufffd" in text or _quotes(text, sent):
        return ""
    return _MASKED.sub(HIDDEN, without_credentials(redactor.text(text)))[:_CHARACTERS]


def _message(body: bytes) -> str:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = body.decode("utf-8", "replace")
        page = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return page[1] if page is not None else "" if text.lstrip().startswith("<") else text
    while not isinstance(document, str):
        if isinstance(document, list):
            document = document[0] if document else ""
        elif isinstance(document, dict):
            document = next((document[name] for name in ("error", "message", "detail") if document.get(name)), "")
        else:
            return ""
    return document


def _quotes(text: str, sent: bytes) -> bool:
    letters = _letters(text)
    told = "\n".join(_letters(value) for value in _told(orjson.loads(sent)))
    return any(letters[at : at + _QUOTED] in told for at in range(len(letters) - _QUOTED + 1))


def _told(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _told(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _OURS:
                yield from _told(item)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
