"""Makes a provider's own explanation of a failure safe to show to operators.

It reaches logs, `status` and a resource's conditions, which more people read than the memory itself. So credentials are
redacted, and an explanation that quotes the request is dropped whole: it may hold what somebody told the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from myria.llm.secrets import HIDDEN, Redactor
from myria.log.redaction.redactor import without_credentials

_CHARACTERS: Final = 300
_QUOTED_LETTERS: Final = 24
"""This many letters and digits in a row (spaces ignored) that also stand in the request make a text a quotation."""

_MOST_READ_BYTES: Final = 65_536
_QUOTABLE_FIELDS: Final = frozenset({"model", "tools", "response_format", "tool_choice"})
"""Fields of a request that hold nothing of the memory, so may be quoted: a wrong model's name should be shown."""

_MASKED = re.compile(r"\S*\*{2,}\S*|[\w-]{2,}(?:\.{3}|…)[\w-]{2,}")
"""A key of which the provider itself shows a part: `sk-ab***yz`, `sk-ab...yz`."""


def said(body: bytes, sent: bytes, redactor: Redactor) -> str:
    """Return the explanation in an error reply, on one line; "" if it has none that may be shown.

    Args:
        body: what the provider answered: JSON as OpenAI, Ollama, vLLM or Google write it, or text.
        sent: the JSON of the request.
        redactor: knows the credentials of the request.
    """
    text = " ".join(_message(body[:_MOST_READ_BYTES]).split())
    if not text.isprintable() or "\ufffd" in text or _quotes(text, sent):
        return ""
    return _MASKED.sub(HIDDEN, without_credentials(redactor.text(text)))[:_CHARACTERS]


def _message(body: bytes) -> str:
    """Return the message in an error reply: of JSON the innermost error or message, of an HTML page its title."""
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
    """Tell whether a text quotes what a request sent of the memory."""
    letters = _letters(text)
    sent_letters = "\n".join(_letters(value) for value in _memory_texts(orjson.loads(sent)))
    return any(letters[at : at + _QUOTED_LETTERS] in sent_letters for at in range(len(letters) - _QUOTED_LETTERS + 1))


def _memory_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _memory_texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _QUOTABLE_FIELDS:
                yield from _memory_texts(item)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
