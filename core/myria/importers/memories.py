"""What other memories kept: Mem0, Zep, Basic Memory, and the reference memory server of MCP."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import yaml

from myria.contract.limits import MAX_ID
from myria.errors import InvalidArgument, InvalidTimestamp, MyriaError
from myria.importers.files import Source
from myria.importers.records import (
    NO_TEXT,
    LeftOut,
    Message,
    Record,
    Statement,
    Unreadable,
    identified,
    moment,
    objects,
    text_of,
)
from myria.notes.drafting import Draft

_PART = 4_000
"""Characters of a page's text that make one note."""

_OVER = LeftOut(reason="no longer true")
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n?", re.DOTALL)
_OBSERVATION = re.compile(r"^\s*[-*]\s+\[(?P<category>[^\[\]()]+)\]\s+(?P<text>.+)$")
_RELATION = re.compile(r"^\s*[-*]\s+(?P<relation>[^\[\]]+?)\s+\[\[(?P<target>[^\[\]]+)\]\](?:\s+\((?P<note>.*)\))?\s*$")
_TAG = re.compile(r"(?<!\S)#([\w/-]+)")
_TASK = re.compile(r"^[ xX-]$")


def mem0(source: Source) -> Iterator[Record]:
    """Yield the memories that Mem0's `get_all` returns: `{"results": [...]}`, its list, or JSON lines."""
    for item in _items(source, ("results", "memories", "data"), "memory", "Mem0's get_all"):
        text = text_of(item.get("memory") or item.get("text"))
        if not text:
            yield NO_TEXT
            continue
        people = [text_of(item.get(field)) for field in ("user_id", "agent_id")]
        yield _statement(
            key=f"mem0:{item.get('id') or identified(text, *people)}",
            at=item.get("updated_at") or item.get("created_at"),
            draft=Draft(content=text, keywords=_keywords(item.get("categories")), source="mem0"),
            people=tuple(filter(None, people)),
            agent=people[1] or None,
        )


def zep(source: Source) -> Iterator[Record]:
    """Yield what Zep's graph holds: facts of `edges` (or `facts`), and `episodes` or `messages`, which were said."""
    names = ("edges", "facts", "episodes", "messages")
    for item in _items(source, names, "fact", "Zep's edges and episodes", also="content"):
        fact = text_of(item.get("fact"))
        if fact:
            if item.get("invalid_at") or item.get("expired_at"):
                yield _OVER
                continue
            yield _statement(
                key=f"zep:{item.get('uuid') or identified(fact)}",
                at=item.get("valid_at") or item.get("created_at"),
                draft=Draft(content=fact, source="zep"),
                people=tuple(filter(None, [text_of(item.get("user_id"))])),
            )
        else:
            yield _said_to_zep(item)


def _said_to_zep(item: Mapping[str, Any]) -> Record:
    text = text_of(item.get("content"))
    if not text:
        return NO_TEXT
    thread = text_of(item.get("thread_id") or item.get("session_id")) or "graph"
    role = text_of(item.get("role_type") or item.get("role"))
    speaker = text_of(item.get("name")) or text_of(item.get("role")) or role or "user"
    try:
        at = moment(item.get("created_at"))
    except InvalidTimestamp as error:
        return Unreadable(error=error)
    return Message(
        at=at,
        channel="zep",
        conversation=thread,
        key=text_of(item.get("uuid")) or identified(thread, text, at.isoformat()),
        speaker=speaker,
        text=text,
        people=tuple({speaker, text_of(item.get("user_id")) or speaker}),
    )


def memory_server(source: Source) -> Iterator[Record]:
    """Yield the observations and relations of MCP's reference memory server: `memory.json`, in fact JSON lines."""
    found = False
    for name in source.names(".json", ".jsonl"):
        for item in _flat(source.json_lines(name), ("entities", "relations")):
            found = found or "observations" in item or "relationType" in item
            yield from _of_memory_server(item)
    if not found:
        raise _none("the memory server's memory.jsonl", "type: entity")


def _of_memory_server(item: Mapping[str, Any]) -> Iterator[Record]:
    entity, observations = text_of(item.get("name")), item.get("observations")
    if entity and isinstance(observations, list):
        for observation in map(text_of, observations):
            if not observation:
                yield NO_TEXT
                continue
            # An observation is often half a sentence: without its subject nobody would know whom it speaks of.
            content = observation if entity.lower() in observation.lower() else f"{entity}: {observation}"
            yield _statement(
                key=f"memory-server:{identified(entity, observation)}",
                at=None,
                draft=Draft(content=content, topic=entity[:MAX_ID], source="memory-server"),
            )
    elif text_of(item.get("relationType")):
        parts = [text_of(item.get(field)) for field in ("from", "relationType", "to")]
        content = " ".join([parts[0], parts[1].replace("_", " "), parts[2]])
        yield _statement(
            key=f"memory-server:{identified(*parts)}",
            at=None,
            draft=Draft(content=content, kind="relation", topic=parts[0][:MAX_ID], source="memory-server"),
        )
    else:
        yield LeftOut(reason="neither entity nor relation")


def basic_memory(source: Source) -> Iterator[Record]:
    """Yield the observations and relations of Basic Memory's pages, and what else a page says as one text.

    Each is a Markdown file with front matter; the source is a project's folder, or a ZIP of it.
    """
    names = [name for name in source.names(".md", ".markdown") if name.lower().endswith((".md", ".markdown"))]
    if not names:
        raise InvalidArgument("a project of Basic Memory is a folder of Markdown files; none was found", field="file")
    for name in names:
        try:
            yield from _page(name, source.text(name))
        except MyriaError as error:
            yield Unreadable(error=error)


def _page(name: str, text: str) -> Iterator[Record]:
    match = _FRONT.match(text)
    try:
        front = yaml.safe_load(match[1]) if match else {}
    except yaml.YAMLError as error:
        raise InvalidArgument(f"the front matter of {name} is no YAML", field="file") from error
    front = front if isinstance(front, dict) else {}
    title = text_of(front.get("title")) or name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    page = text_of(front.get("permalink")) or name
    at = _day(front)
    prose: list[str] = []
    for line in (text[match.end() :] if match else text).splitlines():
        observation, relation = _OBSERVATION.match(line), _RELATION.match(line)
        if observation is not None and not _TASK.match(observation["category"]):
            said = observation["text"].strip()
            content = said if title.lower() in said.lower() else f"{title}: {said}"
            keywords = tuple(dict.fromkeys([observation["category"].strip(), *_TAG.findall(said)]))
            draft = Draft(content=content, topic=title[:MAX_ID], keywords=keywords, source="basic-memory")
            yield _statement(key=f"basic-memory:{identified(page, line.strip())}", at=at, draft=draft)
        elif relation is not None:
            content = f"{title} {relation['relation'].replace('_', ' ')} {relation['target']}"
            content += f" ({relation['note']})" if relation["note"] else ""
            draft = Draft(content=content, kind="relation", topic=title[:MAX_ID], source="basic-memory")
            yield _statement(key=f"basic-memory:{identified(page, line.strip())}", at=at, draft=draft)
        elif not line.lstrip().startswith("#"):
            prose.append(line)
    for part in _parts("\n".join(prose)):
        draft = Draft(content=f"{title}\n\n{part}", kind="fact", topic=title[:MAX_ID], source="basic-memory")
        yield _statement(key=f"basic-memory:{identified(page, part)}", at=at, draft=draft)


def _parts(text: str) -> Iterator[str]:
    """Yield a text in parts of whole paragraphs, each about as long as a note may well be."""
    part = ""
    for paragraph in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
        if part and len(part) + len(paragraph) > _PART:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}" if part else paragraph
    if part:
        yield part


def _day(front: Mapping[str, Any]) -> Any:
    value = next((front[field] for field in ("updated", "modified", "created", "date") if front.get(field)), None)
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)


def _items(
    source: Source, lists: tuple[str, ...], field: str, what: str, *, also: str | None = None
) -> Iterator[dict[str, Any]]:
    found = False
    for name in source.names(".json", ".jsonl"):
        for item in _flat(source.json_lines(name), lists):
            if field in item or (also is not None and also in item):
                found = True
                yield item
    if not found:
        raise _none(what, field)


def _flat(values: Iterator[Any], lists: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file: those of a list, those under the named fields of an object, or the object itself."""
    for value in values:
        if isinstance(value, list):
            yield from objects(value)
        elif isinstance(value, dict):
            inner = [item for name in lists for item in objects(value.get(name))]
            yield from inner or ([] if any(name in value for name in lists) else [value])


def _none(what: str, field: str) -> InvalidArgument:
    return InvalidArgument(f"nothing was found that looks like {what}: objects with {field!r}", field="file")


def _statement(*, key: str, at: Any, draft: Draft, people: tuple[str, ...] = (), agent: str | None = None) -> Record:
    try:
        return Statement(key=key, at=None if not at else moment(at), draft=draft, people=people, agent=agent)
    except InvalidTimestamp as error:
        return Unreadable(error=error)


def _keywords(value: Any) -> tuple[str, ...] | None:
    words = [text_of(word)[:MAX_ID] for word in value] if isinstance(value, list) else []
    return tuple(filter(None, words)) or None
