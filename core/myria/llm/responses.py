"""The Responses API: what it is asked, and what is read out of its replies, as chat completions are elsewhere.

A conversation is kept as messages of chat completions; here they become the input items of a response. Nothing is kept
at the provider between two turns (`store: false`): each request carries the whole conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from myria.llm.failures import Kind, failed
from myria.llm.template import RequestTemplate
from myria.llm.wire import Called, Completion, Dialect, Reply, Usage, read, reported, usage_in

Json = dict[str, Any]

_PATH = "/v1/responses"
_LIMIT = "max_output_tokens"


class _Part(Reply):
    type: str = ""
    text: str = ""
    refusal: str | None = None


class _Item(Reply):
    type: str
    id: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str | dict[str, Any] = ""
    content: list[_Part] | None = None


class _Details(Reply):
    reason: str | None = None


class _Response(Reply):
    status: str | None = None
    incomplete_details: _Details | None = None
    output: list[_Item] | None = None
    usage: Any = None
    error: Any = None


def url_of(base_url: str) -> str:
    """Return where responses are asked for: `/v1/responses` is appended to the root of a provider or of a gateway.

    A base URL that ends so already, or with `/v1`, gets what is missing of it.
    """
    base = base_url.rstrip("/")
    if base.endswith(_PATH):
        return base
    return base.removesuffix("/v1") + _PATH


def _body(
    template: RequestTemplate, messages: Sequence[Json], most_output_tokens: int, extra: Mapping[str, Any]
) -> Json:
    """Return a request. `extra` is what a conversation with tools adds to one of chat completions."""
    instructions = [message["content"] for message in messages if message["role"] == "system"]
    tools = [{"type": "function", **tool["function"]} for tool in extra.get("tools") or ()]
    most = template.body.get(_LIMIT)
    return {
        **template.body,
        "instructions": "\n".join(instructions),
        "input": [item for message in messages for item in _items_of(message)],
        "tools": tools,
        "tool_choice": "required",
        "store": False,
        _LIMIT: min(most, most_output_tokens) if type(most) is int and most > 0 else most_output_tokens,
    }


def _items_of(message: Json) -> Iterable[Json]:
    role = message["role"]
    if role == "system":
        return
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        return
    if message.get("content"):
        yield {"role": role, "content": message["content"]}
    for call in message.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def parse(raw: bytes) -> Completion:
    """Return the reply of a response's body.

    Raises:
        ModelFailed: as `myria.llm.wire.parse`.
    """
    reply = read(raw, _Response, "response")
    if reply.error is not None and not reply.output:
        raise reported(reply.error)
    reason = reply.incomplete_details.reason if reply.incomplete_details is not None else None
    if not reply.output and reason is None:
        raise failed(Kind.EMPTY_CHOICES, "the reply has no output")
    output = reply.output or []
    parts = [part for item in output for part in item.content or () if item.type == "message"]
    return Completion(
        text="".join(part.text for part in parts if part.type == "output_text"),
        calls=tuple(
            Called.of(item.call_id or item.id, place, item.name, item.arguments)
            for place, item in enumerate(output)
            if item.type == "function_call"
        ),
        cut=reason == _LIMIT,
        refused=any(part.refusal for part in parts),
        filtered=reason == "content_filter",
        usage=_usage(reply.usage),
    )


def _usage(usage: Any) -> Usage:
    return usage_in(usage, "input_tokens", "output_tokens")


RESPONSES = Dialect(url_of=url_of, body_of=_body, parse=parse, usage=_usage)
