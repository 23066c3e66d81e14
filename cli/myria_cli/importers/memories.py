"""Exports of other memory systems: Mem0, Zep, Basic Memory, and the reference memory server of MCP."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from myria.errors import InvalidArgument, InvalidTimestamp, MyriaError
from myria.log.limits import MAX_ID
from myria.notes.drafting import Draft, keywords_of
from myria_cli.importers.files import Source
from myria_cli.importers.records import (
    NO_TEXT,
    LeftOut,
    Message,
    Record,
    Statement,
    identified,
    moment,
    text_of,
)

_PART = 4_000
"""Most characters of a page's text in one note, unless one paragraph is longer."""

_INHERITED_FIELDS = ("user_id", "session_id", "thread_id", "thread_created_at")
"""Fields of an object that also hold for the objects in its lists."""

_NO_LONGER_TRUE = LeftOut(reason="no longer true")
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n?", re.DOTALL)
_OBSERVATION = re.compile(r"^\s*[-*]\s+\[(?P<category>[^\[\]()]+)\]\s+(?P<text>.+)$")
_RELATION = re.compile(r"^\s*[-*]\s+(?P<relation>[^\[\]]+?)\s+\[\[(?P<target>[^\[\]]+)\]\](?:\s+\((?P<note>.*)\))?\s*$")
_TAG = re.compile(r"(?<!\S)#([\w/-]+)")


def mem0(source: Source) -> Iterator[Record]:
    """Yield the memories that Mem0's `get_all` returns: `{"results": [...]}`, its list, or JSON lines."""
    fields = ("memory", "text", "data", "content", "relationship")
    for item in _items(source, ("results", "memories", "data", "relations"), fields, "Mem0's get_all"):
        user, agent = (text_of(item.get(field)) for field in ("user_id", "agent_id"))
        people = tuple(filter(None, (user, agent)))
        text = next(filter(None, (text_of(item.get(field)) for field in fields)), "")
        if item.get("relationship"):
            yield _relation("mem0", item.get("source"), text, item.get("target") or item.get("destination"), people)
        elif text:
            key = str(item.get("id") or identified(text, user, agent))
            at, keywords = item.get("updated_at") or item.get("created_at"), _keywords(item.get("categories"))
            yield _statement("mem0", key, text, at=at, people=people, agent=agent or None, keywords=keywords)
        else:
            yield NO_TEXT


def zep(source: Source) -> Iterator[Record]:
    """Yield the content of Zep's graph: facts of `edges` (or `facts`), and messages of `episodes` or `messages`."""
    holders = (
        "edges",
        "facts",
        "relevant_facts",
        "episodes",
        "messages",
        "nodes",
        "items",
        "threads",
        "sessions",
        "users",
    )
    for item in _items(source, holders, ("fact", "content", "summary"), "Zep's edges and episodes"):
        summary = text_of(item.get("summary"))
        fact = text_of(item.get("fact")) or (summary and f"{item.get('name')}: {summary}")
        if not fact:
            yield _zep_message(item)
        elif item.get("invalid_at") or item.get("expired_at"):
            yield _NO_LONGER_TRUE
        else:
            people = tuple(filter(None, [text_of(item.get("user_id"))]))
            at = item.get("valid_at") or item.get("created_at")
            yield _statement("zep", str(item.get("uuid") or identified(fact)), fact, at=at, people=people)


def _zep_message(item: Mapping[str, Any]) -> Record:
    """Convert an episode or message of Zep into a record."""
    text = text_of(item.get("content"))
    if not text:
        return NO_TEXT
    thread = text_of(item.get("thread_id") or item.get("session_id"))
    # An answer to thread.get has no thread id, so owner and beginning identify the thread.
    owner, thread_begun_at = text_of(item.get("user_id")), text_of(item.get("thread_created_at"))
    role = text_of(item.get("role_type") or item.get("role"))
    speaker = text_of(item.get("name")) or text_of(item.get("role")) or role or "user"
    try:
        at = moment(item.get("created_at"))
    except InvalidTimestamp as error:
        return error
    return Message(
        at=at,
        channel="zep",
        conversation=thread or f"{owner or 'graph'} {thread_begun_at}".strip(),
        key=text_of(item.get("uuid")) or identified(thread, text, at.isoformat()),
        speaker=speaker,
        text=text,
        people=tuple({speaker, owner or speaker}),
        remark=None if thread or thread_begun_at else "have no thread: what is of one user is one conversation",
    )


def memory_server(source: Source) -> Iterator[Record]:
    """Yield the observations and relations of MCP's reference memory server: `memory.json`, in fact JSON lines."""
    for item in _items(source, ("entities", "relations"), ("name", "relationType"), "the memory server's memory.jsonl"):
        if text_of(item.get("relationType")):
            yield _relation("memory-server", item.get("from"), item["relationType"], item.get("to"))
        elif text_of(item.get("name")) and isinstance(item.get("observations"), list):
            yield from _entity(text_of(item["name"]), text_of(item.get("entityType")), item["observations"])
        else:
            yield LeftOut(reason="neither entity nor relation")


def _entity(entity: str, kind: str, observations: list[Any]) -> Iterator[Record]:
    """Yield a statement for each observation of an entity, with its kind as a keyword.

    An entity without observations yields its kind as the only statement.
    """
    for text in map(text_of, observations or [kind]):
        if not text:
            yield NO_TEXT
            continue
        content = _naming_subject(entity, text)
        keywords = (kind[:MAX_ID], *keywords_of(content)) if kind else None
        key = identified(entity, text)
        yield _statement("memory-server", key, content, topic=entity[:MAX_ID], keywords=keywords)


def _naming_subject(subject: str, text: str) -> str:
    """Put the subject before a text that does not name it: many observations are half sentences without a subject."""
    is_named = re.search(rf"\b{re.escape(subject)}\b", text, re.IGNORECASE)
    return text if is_named else f"{subject}: {text}"


def _relation(system: str, subject: Any, relation: Any, target: Any, people: tuple[str, ...] = ()) -> Record:
    parts = [text_of(subject), text_of(relation), text_of(target)]
    content = " ".join([parts[0], parts[1].replace("_", " "), parts[2]])
    key = identified(*parts, *people)
    return _statement(system, key, content, people=people, kind="relation", topic=parts[0][:MAX_ID] or None)


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
            yield error


def _page(name: str, text: str) -> Iterator[Record]:
    """Yield a page's observations and relations, each line a statement, and the rest of its text in parts."""
    match = _FRONT.match(text)
    try:
        front = yaml.safe_load(match[1]) if match else {}
    except yaml.YAMLError as error:
        raise InvalidArgument(f"the front matter of {name} is no YAML", field="file") from error
    front = front if isinstance(front, dict) else {}
    title = text_of(front.get("title")) or name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    page = text_of(front.get("permalink")) or name
    at = str(next((front[field] for field in ("updated", "modified", "created", "date") if front.get(field)), ""))
    prose: list[str] = []
    for line in (text[match.end() :] if match else text).splitlines():
        observation, relation = _OBSERVATION.match(line), _RELATION.match(line)
        key = identified(page, line.strip())
        if observation is not None and observation["category"] not in tuple(" xX-"):
            observation_text = observation["text"].strip()
            content = _naming_subject(title, observation_text)
            keywords = tuple(dict.fromkeys([observation["category"].strip(), *_TAG.findall(observation_text)]))
            yield _statement("basic-memory", key, content, at=at, topic=title[:MAX_ID], keywords=keywords)
        elif relation is not None:
            content = f"{title} {relation['relation'].replace('_', ' ')} {relation['target']}"
            content += f" ({relation['note']})" if relation["note"] else ""
            yield _statement("basic-memory", key, content, at=at, kind="relation", topic=title[:MAX_ID])
        elif not line.lstrip().startswith("#"):
            prose.append(line)
    for number, part in enumerate(_parts("\n".join(prose))):
        key, tags = identified(page, "text", str(number)), _keywords(front.get("tags"))
        content = f"{title}\n\n{part}"
        yield _statement("basic-memory", key, content, at=at, kind="fact", topic=title[:MAX_ID], keywords=tags)


def _parts(text: str) -> Iterator[str]:
    """Split a text into parts of whole paragraphs, each of about `_PART` characters at most."""
    part = ""
    for paragraph in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
        if part and len(part) + len(paragraph) > _PART:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}" if part else paragraph
    if part:
        yield part


def _items(source: Source, holders: tuple[str, ...], fields: tuple[str, ...], what: str) -> Iterator[dict[str, Any]]:
    """Yield the records in a system's files.

    An object with a text in one of `fields` is a record. Of other objects, the lists under the names in `holders` are
    searched for records.
    """
    has_record = False
    for name in source.names(".json", ".jsonl"):
        for item in _flat(source.json_lines(name), holders, fields):
            has_record = has_record or any(isinstance(item.get(field), str) for field in fields)
            yield item
    if not has_record:
        raise InvalidArgument(f"nothing was found that looks like {what}: objects with {fields[0]!r}", field="file")


def _flat(values: Iterable[Any], holders: tuple[str, ...], fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the records in values, giving each the fields of `_INHERITED_FIELDS` from the objects around it."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value, holders, fields)
        elif isinstance(value, dict):
            if any(isinstance(value.get(field), str) for field in fields) or not any(map(value.__contains__, holders)):
                yield value
                continue
            inherited = {field: value[field] for field in _INHERITED_FIELDS if value.get(field)}
            for name in holders:
                if isinstance(value.get(name), list | dict):
                    yield from (inherited | item for item in _flat([value[name]], holders, fields))


def _statement(
    system: str,
    key: str,
    content: str,
    *,
    at: Any = None,
    people: tuple[str, ...] = (),
    agent: str | None = None,
    **more: Any,
) -> Record:
    """Return a statement of a system; `more` are further fields of its draft. A bad time is returned as the error."""
    try:
        draft = Draft(content=content, source=system, **more)
        return Statement(key=f"{system}:{key}", at=moment(at) if at else None, draft=draft, people=people, agent=agent)
    except InvalidTimestamp as error:
        return error


def _keywords(value: Any) -> tuple[str, ...] | None:
    words = [text_of(word)[:MAX_ID] for word in value] if isinstance(value, list) else []
    return tuple(filter(None, words)) or None
