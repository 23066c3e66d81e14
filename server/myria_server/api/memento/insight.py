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
from myria_server.api.memento.calls import AgentCall, Answered, Json
from myria_server.api.memento.input_schemas import KINDS, AgentInput, FeedbackInput, GraphExploreInput, NamedInput
from myria_server.api.memento.notes import note_json

_BUDGET = 2_000
"""Tokens of the text of an answer here."""

_TIERS = ("permanent", "hot", "warm", "cold")


async def graph_explore(call: AgentCall, request: GraphExploreInput) -> Answered:
    """Follow the links that explain a note, one hop in both directions."""
    note_id = await call.note_id(request.startId)
    around = await call.memory.links.around(call.tenant, note_id, may_see=call.who.masks.sees, relations=EXPLAINS)
    relation_of = {end: link.relation for link in around.links for end in (link.from_id, link.to_id)}

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
        MemoryLine(date=each["relation_type"] or each["type"], speaker=None, text=each["content"], handle=each["id"])
        for each in nodes
    ]
    return content, memory_text(lines, token_counter(), _BUDGET).text


async def fragment_history(call: AgentCall, request: NamedInput) -> Answered:
    """Show the versions of a note."""
    note_id = await call.note_id(request.id)
    past = await history(call.memory.database, call.tenant, note_id, may_see=call.who.masks.sees)
    versions = [
        note_json(note_id, version.note, version=version.version)
        | {"speaker": version.speaker, "created_at": to_rfc3339(version.at)}
        for version in past.versions
    ]
    content: Json = {
        "success": True,
        "current": versions[0] if versions else None,
        "versions": versions,
        "superseded_by": list(past.superseded_by),
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
    text = memory_text(lines, token_counter(), _BUDGET).text
    replaced_by = f"\nReplaced by {', '.join(past.superseded_by)}." if past.superseded_by else ""
    return content, text + replaced_by


async def memory_stats(call: AgentCall, _request: AgentInput) -> Answered:
    """Count the notes that the caller sees."""
    memory = call.memory
    found = await statistics(
        memory.database, call.tenant, call.who.held, now=await memory.database.now(), model=memory.vectors
    )
    stats: Json = {
        "total": found.total,
        **{tier: found.tiers[tier] for tier in _TIERS},
        "embedded": "off" if found.embedded is None else found.embedded,
        "embeddings": memory.embeddings,
        "avg_importance": f"{found.importance:.3f}",
        "topic_count": len(found.topics),
        **{f"{kind}_count": found.kinds[kind] for kind in KINDS},
        "total_accesses": found.uses,
        "avg_utility": f"{found.utility:.3f}",
        "total_tokens": found.tokens,
        "complete": found.complete,
    }
    shown = ", ".join(f"{count} {kind}" for kind, count in sorted(found.kinds.items()))
    text = f"{number_of(found.total, 'note')} about {number_of(len(found.topics), 'topic')} ({shown})."
    most = sorted(found.topics.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOPICS]
    topics = [{"topic": topic, "notes": count} for topic, count in most]
    return {"success": True, "stats": stats, "topics": topics}, text if found.total else "No notes yet."


async def tool_feedback(call: AgentCall, request: FeedbackInput) -> Answered:
    """Keep what an agent says of an answer."""
    memory = call.memory
    meant = await call.note_ids(request.fragment_ids)
    if meant:
        await memory.links.check(call.tenant, meant, may_see=call.who.masks.sees)
    now = await memory.database.now()
    given: Json = {"tool": request.tool_name, "suggestion": request.suggestion, "context": request.context}
    clean, _ = await memory.notes.clean(call.tenant, given)
    feedback = Feedback(
        tool=clean["tool"][:MAX_ID],
        relevant=request.relevant,
        sufficient=request.sufficient,
        suggestion=clean["suggestion"],
        context=clean["context"],
        session_id=request.session_id,
        trigger=request.trigger_type,
        question=request.search_event_id,
        notes=tuple(meant),
    )
    event = feedback.event(call.who.participants, timestamp=now, speaker=call.who.speaker)
    (kept,) = await memory.log.append_events(call.tenant, (event,))
    if request.relevant:
        memory.usage.count(call.tenant, meant, now)
    content: Json = {
        "success": True,
        "id": kept.event_id,
        "tool_name": feedback.tool,
        "relevant": request.relevant,
        "sufficient": request.sufficient,
    }
    return content, "Thank you: kept."
