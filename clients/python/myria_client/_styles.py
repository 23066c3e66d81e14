"""From the message lists of model providers to items of a turn, and back. Pure.

A `Style` says how one provider writes messages. What the caller has handed over comes back as the very objects that
were given; only what memory adds is written anew, as texts: calls of tools that are recalled are told, not replayed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Message = Mapping[str, Any]

_LONGEST_ADDRESS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a provider writes messages.

    Args:
        items_of: makes the items of one message.
        is_instruction: tells messages that are the host's own instructions: they are sent to the model as they are,
            and never to the memory.
        message_of: writes an item that memory adds; None for one that the style has no message for.
        begins_with_user: whether the first message must be the user's.
    """

    items_of: Callable[[Message], list[Json]]
    is_instruction: Callable[[Message], bool]
    message_of: Callable[[Json], Json | None]
    begins_with_user: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A message list taken apart: instructions, earlier messages, and those of this turn, each with its items."""

    instructions: tuple[Message, ...]
    history: tuple[tuple[Message, list[Json]], ...]
    current: tuple[tuple[Message, list[Json]], ...]

    def items(self, of: Sequence[tuple[Message, list[Json]]]) -> list[Json]:
        """Return the items of messages."""
        return [item for _, items in of for item in items]


def plain(message: Any) -> Message:
    """Return a message as a mapping; SDKs give objects that know how to become one."""
    if isinstance(message, Mapping):
        return message
    for name in ("model_dump", "to_dict", "dict"):
        if callable(method := getattr(message, name, None)):
            made: Message = method(exclude_none=True) if name == "model_dump" else method()
            return made
    raise TypeError(f"a message must be a mapping or an object of an SDK, not {type(message).__name__}")


def split(style: Style, messages: Sequence[Any]) -> Split:
    """Take a message list apart: this turn is what comes after the last message of the assistant."""
    given = [plain(message) for message in messages]
    instructions = tuple(message for message in given if style.is_instruction(message))
    said = [(message, style.items_of(message)) for message in given if not style.is_instruction(message)]
    last = max((at for at, (message, _) in enumerate(said) if message.get("role") == "assistant"), default=-1)
    return Split(instructions=instructions, history=tuple(said[: last + 1]), current=tuple(said[last + 1 :]))


def assembled(style: Style, taken: Split, prepared: Sequence[Json]) -> list[Any]:
    """Return the messages of a prompt: what memory adds in its place, and the caller's own messages as they were.

    Args:
        prepared: the items that the server gave.
    """
    own = (*taken.history, *taken.current)
    places: dict[str, list[int]] = {}
    for place, (_, items) in enumerate(own):
        for item in items:
            places.setdefault(_name(item), []).append(place)
    added: list[Any] = []
    first = len(taken.history)
    kept = set(range(first, len(own)))  # what is said now is always whole
    for item in prepared:
        if mine := places.get(_name(item)):
            kept.add(mine.pop(0))
        elif (message := style.message_of(item)) is not None:
            added.append(message)
    # What memory adds comes before all of the caller's own: an answer of a tool must follow its call at once.
    messages = [*added, *(own[place][0] for place in sorted(kept))]
    if style.begins_with_user:
        while messages and messages[0].get("role") != "user":
            messages.pop(0)
    return messages


def replies(style: Style, given: Sequence[Any]) -> list[Json]:
    """Return the items of what came out of a model: messages, or texts."""
    items: list[Json] = []
    for reply in given:
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else plain(reply)
        items += style.items_of(message)
    return items


def text_of(item: Json) -> str:
    """Return the words of an item."""
    texts = [part["text"] for part in item.get("content", ()) if part.get("text")]
    return "\n".join([*texts, *([item["output"]] if item.get("output") else [])])


def _name(item: Json) -> str:
    return json.dumps(item, sort_keys=True)


def _said(role: str, parts: list[Json]) -> list[Json]:
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _text(role: str, text: Any) -> list[Json]:
    kind = "output_text" if role == "assistant" else "input_text"
    return [{"type": kind, "text": text}] if isinstance(text, str) and text.strip() else []


def _image(address: Any) -> Json:
    """Return the part of an image; one whose bytes are in its address is only noted."""
    short = isinstance(address, str) and len(address) <= _LONGEST_ADDRESS and not address.startswith("data:")
    return {"type": "input_image", "image_url": address} if short else {"type": "input_image"}


def _call(name: Any, call_id: Any, arguments: str) -> Json:
    return {
        "type": "function_call",
        "role": "assistant",
        "content": _text("assistant", arguments or "{}"),
        "call_id": str(call_id or ""),
        "metadata": {"name": str(name or "")[:200]},
    }


def _output(call_id: Any, output: str) -> Json:
    return {"type": "function_call_output", "call_id": str(call_id or ""), "output": output or " "}


def _told(item: Json) -> tuple[str, str]:
    """Return the role and the words in which an item is told that memory adds."""
    text, kind = text_of(item), item.get("type")
    if kind == "function_call":
        return "assistant", f"[called {(item.get('metadata') or {}).get('name', 'a tool')}: {text}]"
    if kind == "function_call_output":
        return "user", f"[the tool answered: {text}]"
    role = item.get("role") or "user"
    return role, text


# -- OpenAI's chat completions ----------------------------------------------------------------------------------------


def _of_openai(message: Message) -> list[Json]:
    role, content = str(message.get("role") or "user"), message.get("content")
    if role in ("tool", "function"):
        return [_output(message.get("tool_call_id") or message.get("name"), _words(content))]
    parts: list[Json] = []
    for part in map(plain, content if isinstance(content, list) else [{"type": "text", "text": content}]):
        if part.get("type") == "image_url":
            parts.append(_image((part.get("image_url") or {}).get("url")))
        else:
            parts += _text(role, part.get("text") or part.get("refusal"))
    items = _said(role, parts)
    for call in map(plain, message.get("tool_calls") or ()):
        function = plain(call.get("function") or {})
        items.append(_call(function.get("name"), call.get("id"), str(function.get("arguments") or "")))
    return items


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _to_openai(item: Json) -> Json | None:
    role, text = _told(item)
    if not text:
        return None
    return {"role": "system" if role == "developer" else role, "content": text}


OPENAI = Style(
    items_of=_of_openai,
    is_instruction=lambda message: message.get("role") in ("system", "developer"),
    message_of=_to_openai,
    begins_with_user=False,
)

# -- Anthropic's messages ---------------------------------------------------------------------------------------------


def _of_anthropic(message: Message) -> list[Json]:
    role, content = str(message.get("role") or "user"), message.get("content")
    items: list[Json] = []
    parts: list[Json] = []
    for block in map(plain, content if isinstance(content, list) else [{"type": "text", "text": content}]):
        kind = block.get("type")
        if kind in ("tool_use", "server_tool_use"):
            items += _said(role, parts)
            parts = []
            items.append(_call(block.get("name"), block.get("id"), json.dumps(block.get("input") or {})))
        elif kind == "tool_result":
            items += _said(role, parts)
            parts = []
            items.append(_output(block.get("tool_use_id"), _words(block.get("content"))))
        elif kind == "image":
            parts.append(_image((block.get("source") or {}).get("url")))
        else:
            parts += _text(role, block.get("text"))
    return items + _said(role, parts)


def _to_anthropic(item: Json) -> Json | None:
    role, text = _told(item)
    if not text or role in ("developer", "system"):
        return None  # its place is the system prompt, beside the messages
    return {"role": "assistant" if role == "assistant" else "user", "content": text}


ANTHROPIC = Style(
    items_of=_of_anthropic,
    is_instruction=lambda _message: False,
    message_of=_to_anthropic,
    begins_with_user=True,
)


def instructions_of(prepared: Sequence[Json]) -> str:
    """Return what memory adds to the system prompt: its policy."""
    return "\n\n".join(text_of(item) for item in prepared if item.get("role") == "developer")
