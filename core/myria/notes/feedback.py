"""Feedback of agents on the answers of tools: internal events, which enter no topic, folded for operators' reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.clock import rfc3339_of
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.event import NewEvent
from myria.log.masks import Masks

FEEDBACK_TYPE = "myria.feedback"
FEEDBACK_CHANNEL = "myria"
RATED_TOOLS = (
    "remember",
    "batch_remember",
    "recall",
    "forget",
    "restore",
    "amend",
    "context",
    "reflect",
    "memory_consolidate",
    "link",
    "graph_explore",
    "fragment_history",
    "memory_stats",
    "tool_feedback",
)
"""Tools whose feedback is counted by name; that of all others counts together."""

TriggerType = Literal["sampled", "voluntary"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedback:
    """Feedback on one answer of a tool.

    `question` is the number that recall gave its question, `notes` the ids of the notes of its answer that are meant.
    """

    tool: str
    relevant: bool
    sufficient: bool
    suggestion: str | None = None
    context: str | None = None
    session_id: str | None = None
    trigger: TriggerType = "voluntary"
    question: int | None = None
    notes: tuple[str, ...] = ()

    def event(self, participants: tuple[str, ...], *, timestamp: int, speaker: str | None) -> NewEvent:
        """Return the event that keeps this feedback.

        Args:
            participants: who gave the feedback, in canonical form.
            timestamp: in microseconds since 1970 UTC.
        """
        feedback: dict[str, Any] = {
            "tool": self.tool,
            "relevant": self.relevant,
            "sufficient": self.sufficient,
            "trigger": self.trigger,
        }
        if self.suggestion is not None:
            feedback["suggestion"] = self.suggestion
        if self.context is not None:
            feedback["context"] = self.context
        if self.question is not None:
            feedback["question"] = self.question
        if self.notes:
            feedback["notes"] = list(self.notes)
        payload: dict[str, Any] = {"feedback": feedback}
        if speaker is not None:
            payload["speaker"] = speaker
        return NewEvent(
            timestamp=timestamp,
            channel=FEEDBACK_CHANNEL,
            participants=participants,
            payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
            context_id=self.session_id,
            type=FEEDBACK_TYPE,
            internal=True,
        )


async def has_feedback(connection: Connection, tenant: str, masks: Masks) -> bool:
    """Tell whether `feedback_report` has feedback on tools to show, of what masks see."""
    for mask in masks:
        if await connection.fetchval(sql("feedback.is_there"), tenant, list(mask.participants), mask.exact):
            return True
    return False


async def feedback_report(database: Database, tenant: str, *, limit: int) -> dict[str, Any]:
    """Return the counts of feedback on each tool and on tasks, with the newest remarks, for the tenant's operators.

    Args:
        limit: how many of the newest remarks on tools, and on tasks, are returned.
    """
    async with database.read(tenant) as connection:
        tools = await connection.fetch(sql("feedback.by_tool"), tenant)
        newest = await connection.fetch(sql("feedback.newest"), tenant, limit)
        tasks = await connection.fetch(sql("feedback.of_tasks"), tenant, limit)
    return {
        "tools": [dict(row) for row in tools],
        "newest": [
            {
                "at": rfc3339_of(row["said_at"]),
                "tool": row["tool"],
                "relevant": row["relevant"],
                "sufficient": row["sufficient"],
                "suggestion": row["suggestion"],
                "context": row["context"],
                "notes": [] if row["notes"] is None else orjson.loads(row["notes"]),
                "session": row["context_id"],
                "event_id": row["event_id"],
            }
            for row in newest
        ],
        "tasks": {name: tasks[0][name] if tasks else 0 for name in ("said", "succeeded")},
        "newest_tasks": [_task(row) for row in tasks],
    }


def _task(row: asyncpg.Record) -> dict[str, Any]:
    about = orjson.loads(row["about"])
    return {
        "at": rfc3339_of(row["said_at"]),
        "session": row["context_id"],
        "success": about.get("overall_success"),
        "highlights": about.get("tool_highlights", []),
        "pain_points": about.get("tool_pain_points", []),
    }
