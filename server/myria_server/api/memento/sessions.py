"""context, reflect and memory_consolidate: the beginning of a session, its end, and what comes of its notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from myria.access.principal import Principal
from myria.notes.answertext import ShownAnswer
from myria.notes.sessions.opening import Opening
from myria.notes.sessions.reflecting import Reflection, reflect
from myria.topics.lines import counted
from myria_server.api.core import inputs
from myria_server.api.memento.answering import AgentTools, Handler, Json
from myria_server.api.memento.session_schemas import ConsolidateInput, ContextInput, ReflectInput

_NOTHING = "Nothing is remembered yet."
_TOO_LITTLE = "tokenBudget is too small to show anything."


class SessionTools(AgentTools):
    """The tools of sessions and maintenance."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their tools."""
        return {"context": self.context, "reflect": self.reflect, "memory_consolidate": self.consolidate}

    async def context(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Gather what a session should begin with."""
        request = inputs.read(ContextInput, arguments)
        who = self.acting(principal, request)
        openings = self.memory.openings
        opening = await openings.gather(
            principal.tenant,
            who.masks,
            now=await self.memory.database.now(),
            budget=request.tokenBudget,
            kinds=request.types,
            session_id=request.sessionId,
            workspace=request.workspace,
        )
        fragments = openings.as_json(opening, request.tokenBudget)
        if request.sessionId is not None:
            shown = [note.note_id for note in opening.notes]
            await self.memory.shown.note(principal.tenant, who.participants, request.sessionId, shown)
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
            content |= _by_place(opening, fragments)
        else:
            content |= {"fragments": fragments, "injectionText": opening.text}
        return self.answered(principal, request, content, opening.text or (_TOO_LITTLE if opening.is_cut else _NOTHING))

    async def reflect(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Keep what a session leaves, and end it."""
        request = inputs.read(ReflectInput, arguments)
        who = self.writing(principal, request)
        effectiveness = request.task_effectiveness
        said: Json = {}
        if effectiveness is not None:
            said = {
                "overall_success": effectiveness.overall_success,
                "tool_highlights": list(effectiveness.tool_highlights),
                "tool_pain_points": list(effectiveness.tool_pain_points),
            }
        kept = await reflect(
            self.memory.notes,
            self.memory.database,
            principal.tenant,
            who.participants,
            Reflection(
                summary=request.summary[0],
                further=request.summary[1:],
                narrative=request.narrative_summary,
                session_id=request.sessionId,
                decisions=request.decisions,
                errors=request.errors_resolved,
                procedures=request.new_procedures,
                questions=request.open_questions,
                effectiveness=said,
            ),
            idle_s=self.settings.notes.session_idle_s,
            speaker=who.speaker,
        )
        if request.sessionId is not None:
            await self.memory.shown.forget(principal.tenant, who.participants, request.sessionId)
        counts = Counter(part for part, _ in kept)
        breakdown = {part: counts[part] for part in ("summary", "decisions", "errors", "procedures", "questions")}
        if counts["episode"]:
            breakdown["episode"] = counts["episode"]
        if said:
            breakdown["task_feedback"] = 1
        fragments = [
            {
                "id": note.note_id,
                "content": note.note.content,
                "type": note.note.kind,
                "keywords": list(note.note.keywords),
            }
            for _, note in kept
        ]
        content = {"success": True, "fragments": fragments, "count": len(fragments), "breakdown": breakdown}
        shown = ", ".join(f"{count} {part}" for part, count in breakdown.items() if count)
        return self.answered(principal, request, content, f"Kept {counted(len(fragments), 'note')} ({shown}).")

    async def consolidate(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Do what is due of the notes that the caller sees."""
        request = inputs.read(ConsolidateInput, arguments)
        who = self.writing(principal, request)
        report = await self.memory.consolidation.run(principal.tenant, masks=who.held)
        content = {"success": True, **report.to_json()}
        done = [f"{name} {count}" for name, count in report.counts.items() if count]
        text = f"Consolidated {counted(report.looked_at, 'note')} ({', '.join(done)})." if done else "Nothing was due."
        if report.stale:
            text += f" {len(report.stale)} or more are stale; the oldest: {report.stale[0]['id']}."
        if report.more:
            text += " More is due: call again."
        return self.answered(principal, request, content, text)


def _by_place(opening: Opening, fragments: list[Json]) -> Json:
    """Return the notes of an answer by where they belong (Memento's `structured`)."""
    core: dict[str, list[Json]] = {f"{kind}s": [] for kind in ("preference", "error", "decision", "procedure")}
    anchors: list[Json] = []
    working: list[Json] = []
    questions: list[Json] = []
    in_core, in_working = ({note.note_id for note in notes} for notes in (opening.core, opening.working))
    for fragment in fragments:
        if fragment["id"] in in_working:
            working.append(fragment)
        elif fragment["id"] not in in_core:
            questions.append(fragment)
        elif fragment["isAnchor"]:
            anchors.append(fragment)
        else:
            kind = fragment["type"]
            core.setdefault(f"{kind}s" if f"{kind}s" in core else kind, []).append(fragment)
    return {
        "structured": True,
        "core": core,
        "working": {"current_session": working},
        "anchors": {"permanent": anchors},
        "open_questions": questions,
        "topics": list(opening.topics),
    }
