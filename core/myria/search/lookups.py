"""Look-ups by id: one event, one topic. Absent and forbidden look alike."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from myria import errors
from myria.db.clock import rfc3339_of, to_datetime, to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.search.nodes import event_body, event_node, topic_node
from myria.search.searching import no_topic
from myria.search.snapshot_view import SnapshotView
from myria.search.topics import NamedSubject, TopicReader, renderings
from myria.settings import TopicsSettings

Json = dict[str, Any]

_SUBJECT_LEAVES = 100
"""Leaves that a subject names as its children, the last ones."""


async def event_answer(
    connection: Connection,
    tenant: str,
    event_id: str,
    masks: Masks,
    *,
    include_internal: bool,
    include_superseded: bool,
) -> Json:
    """Return one event as an answer.

    Raises:
        EventNotFound: as `Retrieval.get_event`.
    """
    active = await connection.fetchrow(sql("retrieval.snapshot_view"), tenant, None, [])
    row = await connection.fetchrow(sql("events.by_id"), tenant, event_id)
    if row is None or not masks.sees(row["participants"]) or (row["internal"] and not include_internal):
        raise _no_event(event_id)
    is_superseded = row["reason"] == "superseded"
    successor = None
    if is_superseded and row["successor_id"] is not None and masks.sees(row["successor_participants"]):
        successor = row["successor_id"]
    if row["reason"] not in (None, "restored") and not (is_superseded and include_superseded):
        raise _no_event(event_id, successor)
    cutoff = (active and active["cutoff"]) or 0
    indexed = not row["internal"] and row["event_seq"] <= cutoff and not row["withdrawn_at_cutoff"]
    node = event_node(row, row["participants"], indexed=indexed, score=0, as_reference=False, with_payload=True)
    event = {
        **event_body(row, row["participants"], indexed=indexed),
        "topic_hints": node["topic_hints"],
        "payload": node["payload"],
        "ingested_at": rfc3339_of(row["ingested_at"]),
    }
    if is_superseded:
        event |= {"superseded": True, "superseded_by": successor}
    return {"snapshot_id": active and active["snapshot_id"], "event": event}


async def topic_answer(
    connection: Connection,
    snapshot: SnapshotView,
    topic_id: str,
    topics: TopicReader,
    *,
    settings: TopicsSettings,
) -> Json:
    """Return one topic of the snapshot as an answer.

    A topic that is no longer in the snapshot is shown as archived, with the topic that holds its events now.

    Raises:
        TopicNotFound: the snapshot view has no such topic.
    """
    tenant = snapshot.tenant
    row = await connection.fetchrow(sql("retrieval.topic"), tenant, topic_id)
    if row is not None and row["prefix"] is not None:
        subject = await topics.named_subject(connection, snapshot, row, topic_id)
        if subject is None:
            raise no_topic(topic_id)
        return await _subject_answer(connection, snapshot, subject, topics, settings=settings)
    if row is None or not snapshot.masks.sees(row["participants"]):
        raise no_topic(topic_id)
    scope = snapshot.scope(row["scope_id"])
    path = None if scope is None else await topics.locate(connection, tenant, scope, row["anchor_seq"])
    if scope is None or path is None:
        raise no_topic(topic_id)
    on_path = {record["rendering_id"]: record for record in await renderings(connection, tenant, path)}
    depth = next(
        (index for index, rendering_id in enumerate(path) if on_path[rendering_id]["topic_id"] == topic_id), None
    )
    merged_into = None
    if depth is None:
        # It was merged: its events are below the uppermost topic on the path of no higher level than it had.
        levels = [on_path[rendering_id]["level"] for rendering_id in path]
        depth = next((index for index, level in enumerate(levels) if level <= row["level"]), len(path) - 1)
        merged_into = on_path[path[depth]]["topic_id"]
    topic_row = on_path[path[depth]]
    children = await connection.fetch(sql("retrieval.children"), tenant, path[depth])
    newest = await connection.fetchval(sql("retrieval.newest_moment"), tenant, snapshot.visible.ids.tolist())
    first_at, last_at = to_microseconds(topic_row["first_at"]), to_microseconds(topic_row["last_at"])
    topic = snapshot.hidden.topic(topic_node(topic_row, scope.participants), scope.scope_id, first_at, last_at)
    node_type = topic.pop("kind")
    topic["topic_id"] = topic_id
    topic["node_type"] = node_type
    topic["context_id"] = await connection.fetchval(sql("retrieval.shared_context"), tenant, [path[depth]])
    topic["state"] = "archived" if merged_into else _state(topic_row["last_at"], newest, settings)
    topic["parent_topic_id"] = on_path[path[depth - 1]]["topic_id"] if depth else None
    topic["children"] = [child["topic_id"] for child in children]
    topic["merged_into"] = merged_into
    return {"snapshot_id": snapshot.snapshot_id, "topic": topic}


async def _subject_answer(
    connection: Connection,
    snapshot: SnapshotView,
    subject: NamedSubject,
    topics: TopicReader,
    *,
    settings: TopicsSettings,
) -> Json:
    """Return a subject as a topic's answer; its children are its last leaves, in order of time."""
    newest = await connection.fetchval(sql("retrieval.newest_moment"), snapshot.tenant, snapshot.visible.ids.tolist())
    leaves = await topics.leaves(connection, snapshot, subject.rendering_id, most=_SUBJECT_LEAVES)
    topic = {**subject.topic.shown(snapshot.hidden)}
    topic["node_type"] = topic.pop("kind")
    leaf_ids = list(await topics.all_leaves(connection, snapshot, subject))
    topic["context_id"] = await connection.fetchval(sql("retrieval.shared_context"), snapshot.tenant, leaf_ids)
    topic["state"] = _state(to_datetime(subject.topic.last_at), newest, settings)
    topic["parent_topic_id"] = None
    topic["children"] = [topic_id for _, topic_id in leaves]
    topic["merged_into"] = None
    return {"snapshot_id": snapshot.snapshot_id, "topic": topic}


def _no_event(event_id: str, successor_id: str | None = None) -> errors.EventNotFound:
    """Return the error for an event that is absent, forbidden or withdrawn, or that another one replaced."""
    if successor_id is None:
        return errors.EventNotFound(f"no event {event_id} is visible to these participants", event_id=event_id)
    return errors.EventNotFound(
        f"event {event_id} was superseded by {successor_id}; look that up, or include superseded events",
        event_id=event_id,
        superseded_by=successor_id,
    )


def _state(last_at: datetime, newest: datetime | None, settings: TopicsSettings) -> str:
    """Return a topic's state by how long before the newest visible event its last one was."""
    silence = (newest - last_at).total_seconds() if newest is not None else 0.0
    if silence > settings.archived_after_s:
        return "archived"
    return "dormant" if silence > settings.dormant_after_s else "active"
