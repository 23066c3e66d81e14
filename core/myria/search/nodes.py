"""The JSON of single nodes: events, references and topics, without children."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import orjson

from myria.db.clock import rfc3339_of
from myria.log.payloads import speaker_of, whole_text
from myria.text.passages import passage

Json = dict[str, Any]

SNIPPET_CHARACTERS = 240


def event_body(row: asyncpg.Record, participants: Sequence[str], *, indexed: bool) -> Json:
    """Return what every answer says about an event, without payload, hints or score.

    `indexed` tells whether the trees of the answer's snapshot hold it.
    """
    return {
        "event_id": row["event_id"],
        "event_seq": row["event_seq"],
        "source_event_key": row["source_event_key"],
        "timestamp": rfc3339_of(row["occurred_at"], row["utc_offset"]),
        "channel": row["channel"],
        "type": row["type"],
        "context_id": row["context_id"],
        "participants": list(participants),
        "internal": row["internal"],
        "indexed": indexed,
    }


def event_node(
    row: asyncpg.Record,
    participants: Sequence[str],
    *,
    indexed: bool,
    score: int,
    as_reference: bool,
    with_payload: bool,
    sought: frozenset[str] = frozenset(),
) -> Json:
    """Return an `event_ref` (from a leaf topic to its event) or an `event` node.

    Args:
        with_payload: show the whole payload and the hints, else a snippet. References and nodes with a snippet name
            the speaker.
        sought: words of the question; the snippet is cut where most of them are.
    """
    payload = orjson.loads(row["payload"])
    node = {"kind": "event_ref" if as_reference else "event", **event_body(row, participants, indexed=indexed)}
    if with_payload:
        node["topic_hints"] = orjson.loads(row["topic_hints"])
        node["payload"] = payload
    else:
        node["snippet"] = passage(whole_text(payload), sought, SNIPPET_CHARACTERS)
    if as_reference or not with_payload:
        node["speaker"] = speaker_of(payload)
    node["score"] = score
    return node


def topic_node(row: asyncpg.Record, participants: Sequence[str]) -> Json:
    """Return a topic node of a rendering, its `kind` being its node type."""
    metadata = orjson.loads(row["metadata"])
    return {
        "kind": row["node_type"],
        "topic_id": row["topic_id"],
        "node_id": row["node_id"].hex(),
        "level": row["level"],
        "label": row["label"],
        "summary": row["summary"],
        "participants": list(participants),
        "first_at": rfc3339_of(row["first_at"]),
        "last_at": rfc3339_of(row["last_at"]),
        "counts": {"events": row["events"], "leaves": row["leaves"], "children": len(row["children"])},
        "keywords": [keyword for keyword, _ in metadata.get("keywords", ())],
        "speakers": [speaker for speaker, _ in metadata.get("speakers", ())],
    }
