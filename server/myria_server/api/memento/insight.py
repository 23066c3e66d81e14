"""graph_explore, fragment_history, memory_stats and tool_feedback: looking at notes as a whole, and at answers."""

from __future__ import annotations

from myria.db.clock import to_rfc3339
from myria.log.limits import MAX_ID
from myria.notes.feedback import Feedback
from myria.notes.histories import history
from myria.notes.lines import MemoryLine, memory_text
from myria.notes.links import EXPLAINS, LinkedNote
from myria.notes.statistics import MAX_TOPICS, statistics
from myria.text.model_tokens import token_counter
from myria.topics.lines import counted as number_of
from myria_server.api.api_call import Json
from myria_server.api.memento.calls import AgentCall, Answered
from myria_server.api.memento.input_schemas import KINDS, AgentInput, FeedbackInput, GraphExploreInput, NamedInput
from myria_server.api.memento.notes import note_json

_BUDGET = 2_000
"""Tokens of the text of an answer here."""

_TIERS = ("permanent", "hot", "warm", "cold")


async def graph_explore(call: AgentCall, request: GraphExploreInput) -> Answered:
    """Follow caused_by, resolved_by and part_of links from a note."""
    note_id = await call.note_id(request.startId)
    around = await call.memory.links.around(call.tenant, note_id, may_see=call.who.masks.sees, relations=EXPLAINS)
    relation_of = {end_id: link.relation for link in around.links for end_id in (link.from_id, link.to_id)}

    def node(note: LinkedNote, relation: str | None) -> Json:
        return {
            "id": note.note_id,
            "content": note.text,
            "type": note.kind,
            "topic": note.topic,
            "importance": note.importance,
            "relation_type": relation,
            "depth": 0 if relation is None else 1,
        }

    nodes = [node(around.start, None), *(node(note, relation_of[note.note_id]) for note in around.neighbours)]
    edges = [
        {"from": link.from_id, "to": link.to_id, "relation_type": link.relation, "weight": link.weight}
        for link in around.links
    ]
    content: Json = {"success": True, "startId": note_id, "nodes": nodes, "edges": edges, "count": len(nodes)}
    lines = [
        MemoryLine(date=item["relation_type"] or item["type"], speaker=None, text=item["content"], handle=item["id"])
        for item in nodes
    ]
    return content, memory_text(lines, token_counter(), _BUDGET, order="").text


async def fragment_history(call: AgentCall, request: NamedInput) -> Answered:
    """Earlier versions of a note, and what replaced it."""
    note_id = await call.note_id(request.id)
    note_history = await history(call.memory.database, call.tenant, note_id, may_see=call.who.masks.sees)
    versions = [
        note_json(note_id, version.note, version=version.version)
        | {"speaker": version.speaker, "created_at": to_rfc3339(version.at)}
        for version in note_history.versions
    ]
    content: Json = {
        "success": True,
        "current": versions[0] if versions else None,
        "versions": versions,
        "superseded_by": list(note_history.superseded_by),
        "count": len(versions),
    }
    lines = [
        MemoryLine(
            date=version["created_at"][:10],
            clock=version["created_at"][11:16],
            speaker=version["speaker"],
            text=version["content"],
            handle=f"version {version['version']}",
        )
        for version in versions
    ]
    text = memory_text(lines, token_counter(), _BUDGET, order="newest first").text
    replaced_by = f"\nReplaced by {', '.join(note_history.superseded_by)}." if note_history.superseded_by else ""
    return content, text + replaced_by


async def memory_stats(call: AgentCall, request: AgentInput) -> Answered:
    """How many notes of each type and tier are kept."""
    memory = call.memory
    counted = await statistics(
        memory.database, call.tenant, call.who.held, now=await memory.database.now(), model=memory.vectors
    )
    stats: Json = {
        "total": counted.total,
        **{tier: counted.tiers[tier] for tier in _TIERS},
        "embedded": "off" if counted.embedded is None else counted.embedded,
        "embeddings": memory.embeddings,
        "avg_importance": f"{counted.importance:.3f}",
        "topic_count": len(counted.topics),
        **{f"{kind}_count": counted.kinds[kind] for kind in KINDS},
        "total_accesses": counted.uses,
        "avg_utility": f"{counted.utility:.3f}",
        "total_tokens": counted.tokens,
        "complete": counted.complete,
    }
    kind_counts = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.kinds.items()))
    text = f"{number_of(counted.total, 'note')} about {number_of(len(counted.topics), 'topic')} ({kind_counts})."
    top_topics = sorted(counted.topics.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOPICS]
    topics = [{"topic": topic, "notes": count} for topic, count in top_topics]
    return {"success": True, "stats": stats, "topics": topics}, text if counted.total else "No notes yet."


async def tool_feedback(call: AgentCall, request: FeedbackInput) -> Answered:
    """Say whether an answer of a tool was relevant and sufficient."""
    memory = call.memory
    note_ids = await call.note_ids(request.fragment_ids)
    if note_ids:
        await memory.links.check(call.tenant, note_ids, may_see=call.who.masks.sees)
    now = await memory.database.now()
    texts: Json = {"tool": request.tool_name, "suggestion": request.suggestion, "context": request.context}
    redacted, _ = await memory.notes.clean(call.tenant, texts)
    feedback = Feedback(
        tool=redacted["tool"][:MAX_ID],
        relevant=request.relevant,
        sufficient=request.sufficient,
        suggestion=redacted["suggestion"],
        context=redacted["context"],
        session_id=request.session_id,
        trigger=request.trigger_type,
        question=request.search_event_id,
        notes=tuple(note_ids),
    )
    event = feedback.event(call.who.participants, timestamp=now, speaker=call.who.speaker)
    (appended,) = await memory.log.append_events(call.tenant, (event,))
    if request.relevant:
        memory.usage.count(call.tenant, note_ids, now)
    content: Json = {
        "success": True,
        "id": appended.event_id,
        "tool_name": feedback.tool,
        "relevant": request.relevant,
        "sufficient": request.sufficient,
    }
    return content, "Thank you: kept."
