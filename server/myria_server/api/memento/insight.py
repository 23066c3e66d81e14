"""fragment_history, memory_stats and tool_feedback: looking at notes as a whole, and at answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from myria.access.principal import Principal
from myria.db.clock import to_rfc3339
from myria.log.limits import MAX_ID
from myria.notes.answertext import ShownAnswer
from myria.notes.feedback import Feedback
from myria.notes.histories import NoteVersion, history
from myria.notes.lines import MemoryLine, memory_text
from myria.notes.statistics import MAX_TOPICS, statistics
from myria.text.model_tokens import token_counter
from myria.topics.lines import counted as number_of
from myria_server.api.core import inputs
from myria_server.api.memento.answering import AgentTools, Handler, Json
from myria_server.api.memento.insight_schemas import FeedbackInput, HistoryInput, StatsInput
from myria_server.api.memento.notes import note_json
from myria_server.api.memento.schemas import KINDS

_BUDGET = 2_000
"""Tokens of a history's text."""

_TIERS = ("permanent", "hot", "warm", "cold")


class InsightTools(AgentTools):
    """The tools that look at notes as a whole, and at answers."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their tools."""
        return {
            "fragment_history": self.fragment_history,
            "memory_stats": self.memory_stats,
            "tool_feedback": self.tool_feedback,
        }

    async def fragment_history(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Show the versions of a note."""
        request = inputs.read(HistoryInput, arguments)
        who = self.acting(principal, request)
        note_id = await self.note_id(principal, request.id)
        with self.as_named({request.id: note_id}):
            past = await history(self.memory.database, principal.tenant, note_id, may_see=who.masks.sees)
        versions = [_version_json(note_id, version) for version in past.versions]
        content: Json = {
            "success": True,
            "current": versions[0] if versions else None,
            "versions": versions,
            "superseded_by": list(past.superseded_by),
            "count": len(versions),
        }
        lines = [
            MemoryLine(
                date=to_rfc3339(version.at)[:10],
                clock=to_rfc3339(version.at)[11:16],
                speaker=version.speaker,
                text=version.note.content,
                handle=f"version {version.version}",
            )
            for version in past.versions
        ]
        shown = memory_text(lines, token_counter(), _BUDGET).text
        if past.superseded_by:
            shown += f"\nReplaced by {', '.join(past.superseded_by)}."
        return self.answered(principal, request, content, shown)

    async def memory_stats(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Count the notes that the caller sees."""
        request = inputs.read(StatsInput, arguments)
        who = self.acting(principal, request)
        counted = await statistics(
            self.memory.database,
            principal.tenant,
            who.held,
            now=await self.memory.database.now(),
            model=self.memory.vectors,
        )
        stats: Json = {
            "total": counted.total,
            **{tier: counted.tiers[tier] for tier in _TIERS},
            "embedded": "off" if counted.embedded is None else counted.embedded,
            "embeddings": self.memory.embeddings,
            "avg_importance": f"{counted.importance:.3f}",
            "topic_count": len(counted.topics),
            **{f"{kind}_count": counted.kinds[kind] for kind in KINDS},
            "total_accesses": counted.uses,
            "avg_utility": f"{counted.utility:.3f}",
            "total_tokens": counted.tokens,
            "complete": counted.complete,
        }
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.kinds.items()))
        about = f"{number_of(counted.total, 'note')} about {number_of(len(counted.topics), 'topic')} ({shown})."
        text = about if counted.total else "No notes yet."
        most = sorted(counted.topics.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOPICS]
        topics = [{"topic": topic, "notes": count} for topic, count in most]
        return self.answered(principal, request, {"success": True, "stats": stats, "topics": topics}, text)

    async def tool_feedback(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Keep what an agent says of an answer."""
        request = inputs.read(FeedbackInput, arguments)
        who = self.writing(principal, request)
        meant = {name: await self.note_id(principal, name) for name in request.fragment_ids or ()}
        if meant:
            with self.as_named(meant):
                await self.memory.links.check(principal.tenant, list(meant.values()), may_see=who.masks.sees)
        now = await self.memory.database.now()
        given: Json = {"tool": request.tool_name, "suggestion": request.suggestion, "context": request.context}
        kept, _ = await self.memory.notes.clean(principal.tenant, given)
        feedback = Feedback(
            tool=kept["tool"][:MAX_ID],
            relevant=request.relevant,
            sufficient=request.sufficient,
            suggestion=kept["suggestion"],
            context=kept["context"],
            session_id=request.session_id,
            trigger=request.trigger_type,
            question=request.search_event_id,
            notes=tuple(dict.fromkeys(meant.values())),
        )
        (appended,) = await self.memory.log.append_events(
            principal.tenant,
            (feedback.event(who.participants, timestamp=now, speaker=who.speaker),),
        )
        if request.relevant:
            self.memory.usage.count(principal.tenant, feedback.notes, now)
        content: Json = {
            "success": True,
            "id": appended.event_id,
            "tool_name": feedback.tool,
            "relevant": request.relevant,
            "sufficient": request.sufficient,
        }
        return self.answered(principal, request, content, "Thank you: kept.")


def _version_json(note_id: str, version: NoteVersion) -> Json:
    shown = note_json(note_id, version.note, version=version.version)
    return shown | {"speaker": version.speaker, "created_at": to_rfc3339(version.at)}
