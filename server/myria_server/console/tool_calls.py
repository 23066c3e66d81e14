"""How pages show what agents do with tools: the calls and results that an event holds, and which belong together.

Read are messages and content blocks of OpenAI (chat completions and responses) and Anthropic, items of turns, and
events of the types `tool_call` and `tool_result` that have a text, arguments or a result. Payloads are anybody's: what
has another shape is no call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

_MOST = 8
"""Calls and results of one event that are shown."""

_CALLS = ("tool_call", "function_call", "custom_tool_call", "tool_use", "server_tool_use", "mcp_tool_use")
_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output", "mcp_tool_result")
_RESULT_ROLES = ("tool", "function")
_ID_FIELDS = ("call_id", "tool_call_id", "tool_use_id", "id")
_NAME_FIELDS = ("name", "tool")
_ARGUMENT_FIELDS = ("arguments", "input")
_RESULT_FIELDS = ("output", "result", "content")
_GIVEN = {*_ARGUMENT_FIELDS, *_RESULT_FIELDS} - {"content"}
"""Fields that only a call or a result has: messages have content, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUse:
    """A call of a tool, or its result.

    `call_id` is the same in both. It and `name` are empty where the event does not say them. `said` holds the
    arguments, a line each, or the result.
    """

    is_result: bool
    call_id: str
    name: str
    said: str
    is_error: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolUses:
    """What an event holds of tools: its calls and results, how many `more`, and the `words` beside them."""

    uses: Sequence[ToolUse]
    more: int
    words: str


Pairs = Mapping[str, Mapping[bool, tuple[str, ToolUse]]]
"""By id of a call: the call (False) and its result (True), each with the id of its event."""


def tool_uses(event: Mapping[str, Any]) -> ToolUses | None:
    """Return what an event of an answer holds of tools; None where it holds nothing of them, or has no payload."""
    payload = event.get("payload")
    if not isinstance(payload, dict):
        return None
    text = payload["text"] if isinstance(payload.get("text"), str) else ""
    message = payload["item"] if isinstance(payload.get("item"), dict) else payload
    uses = list(_of_message(message, text))
    if not uses and (text or not _GIVEN.isdisjoint(payload)):
        uses = list(_of_block(event.get("type"), payload, text))
    if not uses:
        return None
    words = text or _words(message)
    if not {use.said for use in uses}.isdisjoint((words, _arguments(words))):
        words = ""  # they are what a call or a result says
    return ToolUses(uses=uses[:_MOST], more=len(uses[_MOST:]), words=words)


def paired(events: Iterable[Mapping[str, Any]]) -> Pairs:
    """Return the calls and results that some events hold, by the id of the call."""
    pairs: dict[str, dict[bool, tuple[str, ToolUse]]] = {}
    for event in events:
        used = tool_uses(event)
        for use in used.uses if used else ():
            if use.call_id:
                pairs.setdefault(use.call_id, {}).setdefault(use.is_result, (event["event_id"], use))
    return pairs


def _of_message(message: Mapping[str, Any], text: str) -> Iterator[ToolUse]:
    """Yield the calls and results of a message, or of an item that is one itself."""
    yield from _of_block(message.get("type"), message, text)
    if message.get("role") in _RESULT_ROLES:
        yield _use(message, is_result=True, said=_text(message.get("content")))
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield _use({**function, "id": call.get("id")}, is_result=False, said=_arguments(function.get("arguments")))
    for block in _blocks(message):
        yield from _of_block(block.get("type"), block)


def _of_block(kind: Any, block: Mapping[str, Any], text: str = "") -> Iterator[ToolUse]:
    """Yield the call or the result that a block of a kind is, if any; `text` is what it says unless a field does."""
    if kind in _CALLS:
        said = next((block[name] for name in _ARGUMENT_FIELDS if name in block), text or block.get("content"))
        yield _use(block, is_result=False, said=_arguments(said))
    elif kind in _RESULTS:
        said = next((block[name] for name in _RESULT_FIELDS if name in block), text)
        yield _use(block, is_result=True, said=_text(said))


def _use(block: Mapping[str, Any], *, is_result: bool, said: str) -> ToolUse:
    more = block.get("metadata")
    return ToolUse(
        is_result=is_result,
        call_id=_first(block, _ID_FIELDS),
        name=_first(block, _NAME_FIELDS) or (_first(more, _NAME_FIELDS) if isinstance(more, dict) else ""),
        said=said,
        is_error=is_result and block.get("is_error") is True,
    )


def _first(block: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first text among some fields; empty where none is one."""
    return next((value for name in names if isinstance(value := block.get(name), str) and value), "")


def _blocks(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message.get("content")
    return (block for block in content if isinstance(block, dict)) if isinstance(content, list) else iter(())


def _words(message: Mapping[str, Any]) -> str:
    """Return what a message says in words: its content, or the texts among its blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return _text([block for block in _blocks(message) if isinstance(block.get("text"), str)])


def _arguments(said: Any) -> str:
    """Return the arguments of a call, a line each; as they are where they are no JSON object."""
    try:
        read = orjson.loads(said) if isinstance(said, str) else said
        if isinstance(read, dict):
            return "\n".join(f"{name}: {_json(value)}" for name, value in read.items())
    except (ValueError, TypeError):  # no JSON, or nested deeper than it is written
        pass
    return _text(said)


def _text(said: Any) -> str:
    """Return what a result or a message says: the texts of its blocks, a line each, and as JSON what is none."""
    if isinstance(said, list):
        return "\n".join(
            block["text"] if isinstance(block, dict) and isinstance(block.get("text"), str) else _json(block)
            for block in said
        )
    return "" if said is None else _json(said)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
