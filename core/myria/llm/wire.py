"""Parses the provider's replies: unknown fields are ignored, known ones must be valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from myria.llm.failures import Kind, failed, of_status
from myria.llm.template import RequestTemplate

MOST_REPORTED = 10**9
"""Tokens, or millionths of a dollar, beyond which a provider's own count is not believed."""


class Reply(BaseModel):
    """Base of the models of replies: unknown fields are ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", strict=True)


R = TypeVar("R", bound=Reply)


class _Function(Reply):
    name: str
    arguments: str | dict[str, Any] = ""


class _ToolCall(Reply):
    id: str | None = None
    function: _Function


class _Message(Reply):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(Reply):
    message: _Message
    finish_reason: str | None = None


class _Completion(Reply):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a reply says it cost: tokens, and millionths of a dollar; None where it does not say, or is not credible."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Called:
    """One tool call of a reply; `arguments` is JSON text, not parsed yet."""

    call_id: str
    name: str
    arguments: str

    @classmethod
    def of(cls, call_id: str | None, place: int, name: str, arguments: str | dict[str, Any]) -> Called:
        """Return the call that a provider sends, with an id if it left that out, and arguments as text."""
        text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
        return cls(call_id=call_id or f"call_{place}", name=name, arguments=text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One valid reply; `refused`: the model declined; `cut`: out of tokens; `filtered`: the provider withheld it."""

    text: str
    calls: tuple[Called, ...]
    cut: bool
    refused: bool
    filtered: bool
    usage: Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """The protocol that a provider speaks: chat completions, or the Responses API.

    `url_of` makes the address of a request from the base URL. `body_of` makes its body from the template, the messages
    so far, the most output tokens, and the fields that belong to this call. `parse` reads the body of a reply, and
    `usage` its field about tokens and cost.
    """

    url_of: Callable[[str], str]
    body_of: Callable[[RequestTemplate, Sequence[dict[str, Any]], int, Mapping[str, Any]], dict[str, Any]]
    parse: Callable[[bytes], Completion]
    usage: Callable[[Any], Usage]

    def usage_of(self, raw: bytes) -> Usage:
        """Return what a reply says it cost, even if the rest of it cannot be used."""
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return Usage()
        return self.usage(document.get("usage")) if isinstance(document, dict) else Usage()


def read(raw: bytes, model: type[R], what: str) -> R:
    """Parse a body as a model; `what` names it in the error.

    Raises:
        ModelFailed: malformed_json, malformed_reply.
    """
    try:
        return model.model_validate(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise failed(Kind.MALFORMED_JSON, f"the reply is not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:100]
        raise failed(Kind.MALFORMED_REPLY, f"the reply is no {what}: {place}: {first['msg']}") from None


def parse(raw: bytes) -> Completion:
    """Parse the body of a chat completion.

    Raises:
        ModelFailed: malformed_json, malformed_reply, empty_choices; rate_limited, http_5xx or http_4xx where the
            provider reports an error under status 200.
    """
    reply = read(raw, _Completion, "chat completion")
    if reply.error is not None and not reply.choices:
        raise reported(reply.error)
    if not reply.choices:
        raise failed(Kind.EMPTY_CHOICES, "the reply has no choices")
    choice = reply.choices[0]
    message = choice.message
    return Completion(
        text=message.content or "",
        calls=tuple(
            Called.of(call.id, place, call.function.name, call.function.arguments)
            for place, call in enumerate(message.tool_calls or ())
        ),
        cut=choice.finish_reason == "length",
        refused=bool(message.refusal),
        filtered=choice.finish_reason == "content_filter",
        usage=_usage(reply.usage),
    )


def usage_in(usage: Any, input_name: str, output_name: str) -> Usage:
    """Return the usage in a reply's field `usage`; the names are those of the dialect's two token counts."""
    if not isinstance(usage, dict):
        return Usage()
    return Usage(
        input_tokens=_count(usage.get(input_name)),
        output_tokens=_count(usage.get(output_name)),
        cost=_money(usage.get("cost")),
    )


def _usage(usage: Any) -> Usage:
    return usage_in(usage, "prompt_tokens", "completion_tokens")


def _count(value: Any) -> int | None:
    """Return a provider's count of tokens; None if it is not credible."""
    return value if type(value) is int and 0 <= value <= MOST_REPORTED else None


def _money(value: Any) -> int | None:
    """Return a reply's cost, which the provider tells in dollars, in millionths of one; None if it is not credible."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        return None
    micros = math.ceil(value * 1_000_000)
    return micros if micros <= MOST_REPORTED else None


def reported(error: Any) -> Exception:
    """Return the failure for an error that came with status 200, as some gateways send it."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if type(code) is int else 500
    return failed(of_status(status), f"the provider reports error {status}")


CHAT_COMPLETIONS = Dialect(
    url_of=lambda base_url: base_url.rstrip("/") + "/chat/completions",
    body_of=lambda template, messages, most, extra: template.request(messages, most_output_tokens=most, **extra),
    parse=parse,
    usage=_usage,
)
