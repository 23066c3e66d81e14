"""Chats with assistants, as ChatGPT and Claude export them: `conversations.json`, alone or in the ZIP they send.

A conversation is a tree of messages: every edit and every regenerated answer is a branch. Only one path is imported,
the one that the person last saw: from the newest message to the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from myria.errors import InvalidArgument, InvalidTimestamp
from myria_cli.importers.files import Source
from myria_cli.importers.records import (
    NO_TEXT,
    NOTICE,
    LeftOut,
    Message,
    Record,
    identified,
    moment,
    objects,
    text_of,
)

_ROLES = {"user": "user", "human": "user", "assistant": "assistant"}
_HIDDEN = "is_visually_hidden_from_conversation"
_CITATION = re.compile("[ ]?\ue200(?:file)?cite\ue202[^\ue200\ue201]*\ue201")
"""ChatGPT's marks for sources: numbers of search results, between characters of the private-use area."""

_OTHER_BRANCH = LeftOut(reason="in branches that were abandoned")
_TOOL = LeftOut(reason="thoughts, and calls and results of tools")


@dataclass(slots=True)
class _Chat:
    """A conversation whose messages are being read; `begun` is its creation time as in the export."""

    channel: str
    name: str
    title: str | None
    begun: Any
    last: datetime | None = None

    def message(self, *, key: str, role: str, at: Any, text: str) -> Record:
        """Return the record of a message; one without a time gets the previous one's plus a microsecond."""
        if role not in _ROLES:
            return _TOOL if role == "tool" else NOTICE
        if not text:
            return NO_TEXT
        try:
            if not at and self.last is not None:
                sent_at = self.last + timedelta(microseconds=1)
            else:
                sent_at = moment(at or self.begun)
        except InvalidTimestamp as error:
            return error
        title = self.title if self.last is None else None
        self.last = sent_at
        return Message(
            at=sent_at,
            channel=self.channel,
            conversation=self.name,
            key=key,
            speaker=_ROLES[role],
            text=text,
            people=("assistant", "user"),
            title=title,
        )


def chatgpt(source: Source) -> Iterator[Record]:
    """Yield the messages of a ChatGPT export: of each conversation the path that ends in `current_node`."""
    for conversation in _conversations(source, "mapping"):
        nodes = {key: node for key, node in conversation["mapping"].items() if isinstance(node, dict)}
        last_key = conversation.get("current_node")
        path = _path(nodes, last_key if last_key in nodes else _newest(nodes), "parent")
        yield from [_OTHER_BRANCH for key, node in nodes.items() if key not in path and node.get("message")]
        chat = _chat(conversation, "chatgpt", ("conversation_id", "id"), "title", "create_time")
        messages = [(key, message) for key in path if isinstance(message := nodes[key].get("message"), dict)]
        chat.begun = chat.begun or next(filter(None, (message.get("create_time") for _, message in messages)), None)
        for key, message in messages:
            text = _message_text(message)
            if isinstance(text, LeftOut):
                yield text
                continue
            author = message.get("author")
            role = text_of(author.get("role")) if isinstance(author, dict) else ""
            yield chat.message(
                key=text_of(message.get("id")) or key, role=role, at=message.get("create_time"), text=text
            )


def claude(source: Source) -> Iterator[Record]:
    """Yield the messages of a Claude export: of each conversation the path that ends in its newest message."""
    for conversation in _conversations(source, "chat_messages"):
        nodes = {str(item.get("uuid")): item for item in objects(conversation["chat_messages"])}
        path = list(nodes)
        if any(item.get("parent_message_uuid") in nodes for item in nodes.values()):
            leaf = conversation.get("current_leaf_message_uuid")
            path = _path(nodes, leaf if leaf in nodes else path[-1], "parent_message_uuid")
            yield from [_OTHER_BRANCH for key in nodes if key not in path]
        chat = _chat(conversation, "claude", ("uuid",), "name", "created_at")
        for key in path:
            item = nodes[key]
            blocks = list(objects(item.get("content")))
            texts = [text_of(part.get("text")) for part in blocks if part.get("type") == "text"]
            text = "\n\n".join(filter(None, texts)) if blocks else text_of(item.get("text"))
            yield chat.message(key=key, role=text_of(item.get("sender")), at=item.get("created_at"), text=text)


def _conversations(source: Source, mark: str) -> list[dict[str, Any]]:
    """Return the conversations of an export: the objects that have the field `mark`."""
    names = source.names(".json")
    found = []
    for name in [name for name in names if "conversations" in name.lower()] or names:
        content = source.json(name)
        if isinstance(content, dict):
            content = content.get("conversations", [content])
        found += [conversation for conversation in objects(content) if mark in conversation]
    if not found:
        raise InvalidArgument(
            f"no conversation was found: conversations.json of this export is a list of objects with {mark!r}",
            field="file",
        )
    return found


def _chat(conversation: Mapping[str, Any], channel: str, ids: tuple[str, ...], title: str, begun: str) -> _Chat:
    name = next((text for text in map(text_of, map(conversation.get, ids)) if text), None)
    begun_at, title_text = conversation.get(begun), text_of(conversation.get(title)) or None
    return _Chat(channel, name or identified(channel, str(begun_at), title_text or ""), title_text, begun_at)


def _path(nodes: Mapping[str, Any], end: Any, parent: str) -> list[str]:
    """Return the keys of the nodes from the root to `end`; a cycle is cut where it would repeat."""
    path: dict[str, None] = {}
    while end in nodes and end not in path:
        path[end] = None
        end = nodes[end].get(parent)
    return list(reversed(path))


def _newest(nodes: Mapping[str, Any]) -> str | None:
    """Return the key of the newest message without a successor; None if there is no message."""
    parents = {node.get("parent") for node in nodes.values()}
    ends = [key for key, node in nodes.items() if key not in parents and isinstance(node.get("message"), dict)]
    return max(ends, key=lambda key: nodes[key]["message"].get("create_time") or 0, default=None)


def _message_text(message: Mapping[str, Any]) -> str | LeftOut:
    """Return the text of a ChatGPT message, or why it is left out."""
    content, metadata = message.get("content"), message.get("metadata")
    if not isinstance(content, dict) or (isinstance(metadata, dict) and metadata.get(_HIDDEN)):
        return NOTICE
    if content.get("content_type") not in ("text", "multimodal_text") or message.get("recipient") not in (None, "all"):
        return _TOOL
    parts = content.get("parts")
    texts = [
        text_of(part.get("text") if isinstance(part, dict) else part)
        for part in (parts if isinstance(parts, list) else [])
    ]
    return _CITATION.sub("", "\n\n".join(filter(None, texts))).strip()
