"""context, reflect and memory_consolidate: the beginning of a session, its end, and what comes of its notes."""

from __future__ import annotations

from collections import Counter

from myria.notes.sessions.opening import Opening
from myria.notes.sessions.reflecting import Reflection
from myria.notes.sessions.reflecting import reflect as keep_reflection
from myria.topics.lines import counted
from myria_server.api.api_call import Json
from myria_server.api.memento.calls import AgentCall, Answered
from myria_server.api.memento.input_schemas import AgentInput, ContextInput, ReflectInput

_NOTHING = "Nothing is remembered yet."
_TOO_LITTLE = "tokenBudget is too small to show anything."


async def context(call: AgentCall, request: ContextInput) -> Answered:
    """What to know when a session begins: core memory, this session's notes, open questions."""
    memory = call.memory
    opening = await memory.openings.gather(
        call.tenant,
        call.who.masks,
        now=await memory.database.now(),
        budget=request.tokenBudget,
        kinds=request.types,
        session_id=request.sessionId,
        workspace=request.workspace,
    )
    fragments = memory.openings.as_json(opening, request.tokenBudget)
    if request.sessionId is not None:
        note_ids = [note.note_id for note in opening.notes]
        await memory.shown.note(call.tenant, call.who.participants, request.sessionId, note_ids)
    content: Json = {
        "success": True,
        "count": len(fragments),
        "totalTokens": opening.tokens,
        "coreTokens": opening.core_tokens,
        "wmTokens": opening.working_tokens,
        "wmCount": len(opening.working),
        "anchorCount": sum(note.anchor for note in opening.core),
    }
    if request.structured:
        content |= _structured_notes(opening, fragments)
    else:
        content |= {"fragments": fragments, "injectionText": opening.text}
    return content, opening.text or (_TOO_LITTLE if opening.is_cut else _NOTHING)


def _structured_notes(opening: Opening, fragments: list[Json]) -> Json:
    """Return the notes grouped as core, working, anchors and open questions (Memento's `structured`)."""
    core: dict[str, list[Json]] = {f"{kind}s": [] for kind in ("preference", "error", "decision", "procedure")}
    anchors: list[Json] = []
    working: list[Json] = []
    questions: list[Json] = []
    in_core, in_working = ({note.note_id for note in notes} for notes in (opening.core, opening.working))
    for fragment in fragments:
        kind = fragment["type"]
        if fragment["id"] in in_working:
            working.append(fragment)
        elif fragment["id"] not in in_core:
            questions.append(fragment)
        elif fragment["isAnchor"]:
            anchors.append(fragment)
        else:
            core.setdefault(f"{kind}s" if f"{kind}s" in core else kind, []).append(fragment)
    return {
        "structured": True,
        "core": core,
        "working": {"current_session": working},
        "anchors": {"permanent": anchors},
        "open_questions": questions,
        "topics": list(opening.topics),
    }


async def reflect(call: AgentCall, request: ReflectInput) -> Answered:
    """Keep what a session came to, for later ones, and end it."""
    memory = call.memory
    effectiveness = None if request.task_effectiveness is None else request.task_effectiveness.model_dump(mode="json")
    kept_notes = await keep_reflection(
        memory.notes,
        memory.database,
        call.tenant,
        call.who.participants,
        Reflection(
            summary=request.summary[0],
            further=request.summary[1:],
            narrative=request.narrative_summary,
            session_id=request.sessionId,
            decisions=request.decisions,
            errors=request.errors_resolved,
            procedures=request.new_procedures,
            questions=request.open_questions,
            effectiveness=effectiveness or {},
        ),
        idle_s=memory.settings.notes.session_idle_s,
        speaker=call.who.speaker,
    )
    if request.sessionId is not None:
        await memory.shown.forget(call.tenant, call.who.participants, request.sessionId)
    counts = Counter(part for part, _ in kept_notes)
    breakdown = {part: counts[part] for part in ("summary", "decisions", "errors", "procedures", "questions")}
    if counts["episode"]:
        breakdown["episode"] = counts["episode"]
    if effectiveness:
        breakdown["task_feedback"] = 1
    fragments = [
        {
            "id": note.note_id,
            "content": note.note.content,
            "type": note.note.kind,
            "keywords": list(note.note.keywords),
            **({"held": True} if note.held else {}),
        }
        for _, note in kept_notes
    ]
    content = {"success": True, "fragments": fragments, "count": len(fragments), "breakdown": breakdown}
    kept_counts = ", ".join(f"{count} {part}" for part, count in breakdown.items() if count)
    held = sum(note.held for _, note in kept_notes)
    waiting = f" Waiting for a review: {held}." if held else ""
    return content, f"Kept {counted(len(fragments), 'note')} ({kept_counts}).{waiting}"


async def memory_consolidate(call: AgentCall, request: AgentInput) -> Answered:
    """Let expired notes go, merge those that say the same, list stale ones: of what you see."""
    report = await call.memory.consolidation.run(call.tenant, masks=call.who.held)
    done_counts = [f"{name} {count}" for name, count in report.counts.items() if count]
    text = (
        f"Consolidated {counted(report.looked_at, 'note')} ({', '.join(done_counts)})."
        if done_counts
        else "Nothing was due."
    )
    if report.stale:
        text += f" {len(report.stale)} or more are stale; the oldest: {report.stale[0]['id']}."
    if report.more:
        text += " More is due: call again."
    return {"success": True, **report.to_json()}, text
