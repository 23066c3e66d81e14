"""The review of notes that the policy holds back: what waits, and a reviewer's decisions, each one append.

To approve a note restores it, and lets it replace what it would replace. To take a decision back hides the note again,
and brings back what it replaced. Who decided and why stands in the withdrawal or restoration itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.clock import rfc3339_of, to_microseconds
from myria.db.queries import sql
from myria.errors import AlreadySuperseded, ConflictError, CursorInvalid, NoteDecided, NotFoundError
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.ids import new_id
from myria.log.payloads import speaker_of, whole_text
from myria.log.withdrawal.commands import Withdrawals, by_scope
from myria.log.withdrawal.model import WITHHELD, Reason, ReviewDecision, ReviewState, Withdrawal, decision_of
from myria.notes.finding import note_absent
from myria.notes.model import NOTE_CHANNEL, NOTE_TYPE, amendment_of, hints_of, note_of
from myria.notes.replacing import replacing_events

Json = dict[str, Any]

Verdict = Literal["approve", "refuse", "hold"]
"""What a reviewer may say: `hold` takes an approval or a refusal back."""

STATE_OF: dict[Verdict, ReviewState] = {"approve": "approved", "refuse": "refused", "hold": "held"}
_FROM: dict[Verdict, tuple[ReviewState, ...]] = {
    "approve": ("held",),
    "refuse": ("held",),
    "hold": ("approved", "refused"),
}

MOST_WAITING = 1_000
"""Up to this number waiting notes are counted."""

MAX_LISTED = 50
"""Most notes of a page."""

_ATTEMPTS = 5

_CURSOR = re.compile(r"review:([0-9]{1,18})")

_EVIDENCE = 4
_LOOKED_AT = 200
"""Events of a scope among which what was said before a note is looked for."""

_SHOWN_EVIDENCE = 500
_SHOWN_REPLACED = 2_000
"""Characters of a text beside a note."""

_PAGE_SHARE = 2
"""A page is cut where its notes take more than one part in this of an answer's bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What a decision did: the note's state, whether that changed, and the ids of notes that it replaced."""

    note_id: str
    state: ReviewState
    changed: bool
    replaced: tuple[str, ...] = ()


class Review:
    """The review of one process.

    Args:
        log: where decisions are appended, and notes are looked up.
        page_bytes: of the notes of one page; the next page has the rest.
    """

    def __init__(self, log: EventLog, *, page_bytes: int) -> None:
        self._database = log.database
        self._log = log
        self._withdrawals = Withdrawals(log)
        self._page_bytes = page_bytes // _PAGE_SHARE

    async def waiting(self, tenant: str) -> int:
        """Return how many notes wait, counted up to `MOST_WAITING`."""
        async with self._database.read(tenant) as connection:
            count: int = await connection.fetchval(sql("review.waiting"), tenant, MOST_WAITING)
        return count

    async def listed(
        self,
        tenant: str,
        *,
        states: Sequence[ReviewState] = ("held",),
        kind: str | None = None,
        participant: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Json:
        """Return a page of a tenant's notes under review, the last held or decided first, and `next_cursor`.

        Args:
            states: those to list.
            kind: notes of this kind alone.
            participant: notes that this one may see, in canonical form.
            cursor: `next_cursor` of the page before.

        Raises:
            CursorInvalid: it is none of this list.
        """
        place = None if cursor is None else _CURSOR.fullmatch(cursor)
        if cursor is not None and place is None:
            raise CursorInvalid("this cursor is none of this list; ask again without it")
        before = None if place is None else int(place[1])
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(
                sql("review.listed"), tenant, list(states), before, kind, participant, limit + 1
            )
            ids = [row["note_id"] for row in rows[:limit]]
            replaced = await connection.fetch(sql("review.replaces"), tenant, ids)
            evidence = await connection.fetch(sql("review.evidence"), tenant, ids, _EVIDENCE, _LOOKED_AT)
        notes: list[Json] = []
        size = 0
        for row in rows[:limit]:
            note = _listed(row, replaced, evidence)
            size += len(orjson.dumps(note))
            if notes and size > self._page_bytes:
                break
            notes.append(note)
        last = rows[len(notes) - 1] if len(notes) < len(rows) else None
        return {"under_review": notes, "next_cursor": None if last is None else f"review:{last['review_seq']}"}

    async def withheld(self, tenant: str, note_id: str) -> Json | None:
        """Return a note that waits for a review, or was refused in one, as lists show it; None for any other."""
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("review.state"), tenant, note_id)
            if row is None or row["review"] not in WITHHELD:
                return None
            replaced = await connection.fetch(sql("review.replaces"), tenant, [note_id])
            evidence = await connection.fetch(sql("review.evidence"), tenant, [note_id], _EVIDENCE, _LOOKED_AT)
        return _listed(row, replaced, evidence)

    async def decide_all(
        self, tenant: str, note_ids: Sequence[str], verdict: Verdict, *, by: str, why: str = ""
    ) -> Json:
        """Decide about several notes, each by itself; return what became of each (`decided`), and how many changed."""
        decided = [await self._outcome(tenant, note_id, verdict, by, why) for note_id in dict.fromkeys(note_ids)]
        return {"decided": decided, "changed": sum(note["changed"] for note in decided)}

    async def _outcome(self, tenant: str, note_id: str, verdict: Verdict, by: str, why: str) -> Json:
        try:
            decided = await self.decide(tenant, note_id, verdict, by=by, why=why)
        except (NotFoundError, ConflictError) as error:
            return {"note_id": note_id, "changed": False, "error": {"code": error.code, "message": error.message}}
        return {
            "note_id": note_id,
            "state": decided.state,
            "changed": decided.changed,
            "replaced": list(decided.replaced),
        }

    async def decide(self, tenant: str, note_id: str, verdict: Verdict, *, by: str, why: str = "") -> Decided:
        """Decide about a note; a repeat changes nothing.

        Args:
            by: who decides, for the record.
            why: the same.

        Raises:
            NoteNotFound: there is no such note.
            NoteDecided: it is not in the state that the decision is about: somebody decided otherwise, it changed
                since, or no policy ever held it.
            NoteExists: a note with equal text was kept meanwhile, and both cannot stand.
            AlreadySuperseded: a note to replace is being changed again and again; retry.
        """
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("review.state"), tenant, note_id)
        if row is None:
            raise note_absent(note_id)
        state: ReviewState | None = row["review"]
        if state == STATE_OF[verdict]:
            return Decided(note_id=note_id, state=state, changed=False)
        if state is None or state not in _FROM[verdict]:
            raise NoteDecided(_why_not(row), note_id=note_id, state=state)
        decision = ReviewDecision(before=state, by=by, why=why)
        for attempt in range(_ATTEMPTS):
            try:
                replaced = await self._append(tenant, row, verdict, decision)
            except AlreadySuperseded:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return Decided(note_id=note_id, state=STATE_OF[verdict], changed=True, replaced=tuple(replaced))
        raise AssertionError("the last attempt returns or raises")

    async def _append(
        self, tenant: str, row: asyncpg.Record, verdict: Verdict, decision: ReviewDecision
    ) -> Sequence[str]:
        """Append a decision; return the ids of the notes that it replaces.

        Raises:
            AlreadySuperseded: one of the notes to replace, or to bring back, was changed meanwhile.
        """
        replaced: list[str] = []
        if verdict == "approve":
            events, replaced = await self._approval(tenant, row, decision)
        else:
            events = [_decided(row, "refused" if verdict == "refuse" else "held", decision)]
            if decision.before == "approved":
                events += await self._undone(tenant, row)
        await self._log.append_events(tenant, events)
        return replaced

    async def _approval(
        self, tenant: str, row: asyncpg.Record, decision: ReviewDecision
    ) -> tuple[list[NewEvent], list[str]]:
        """Return the events that let a note in, with those by which it replaces others, and the ids of these."""
        async with self._database.read(tenant) as connection:
            named = await connection.fetch(sql("review.replaces"), tenant, [row["note_id"]])
            ids = [other["note_id"] for other in named if other["live"]]
            standing = await connection.fetch(sql("notes.current"), tenant, ids) if ids else []
        event = NewEvent(
            timestamp=to_microseconds(row["occurred_at"]),
            channel=row["channel"],
            participants=tuple(row["participants"]),
            payload_json=row["payload"].encode(),
            context_id=row["context_id"],
            event_id=row["event_id"],
            utc_offset=row["utc_offset"],
        )
        _, *replacing = await replacing_events(
            self._withdrawals, tenant, event, standing, now=max(event.timestamp, time.time_ns() // 1000)
        )
        return [_decided(row, "restored", decision), *replacing], [other["note_id"] for other in standing]

    async def _undone(self, tenant: str, row: asyncpg.Record) -> list[NewEvent]:
        """Return the events that bring back what an approved note replaced, or will replace on a later day."""
        held = orjson.loads(row["payload"])["note"].get("held") or {}
        async with self._database.read(tenant) as connection:
            replaced = await connection.fetch(sql("review.replaced"), tenant, row["event_seq"])
            ids = [note_id for note_id in held.get("replaces", []) if isinstance(note_id, str)]
            ending = await connection.fetch(sql("review.ending"), tenant, ids, row["event_id"])
        events = by_scope(replaced, Withdrawal(reason="restored", events=()), key=None) if replaced else []
        for version in ending:
            lasting, withdrawals = await self._withdrawals.superseding(
                tenant, _lasting_version(version), [version["event_id"]], may_see=lambda _: True
            )
            events += [lasting, *withdrawals]
        return events


def _decided(row: asyncpg.Record, reason: Reason, decision: ReviewDecision) -> NewEvent:
    """Return the event of a decision; its own key tells a repeated attempt of it from another decision."""
    (event,) = by_scope([row], Withdrawal(reason=reason, events=(), decision=decision), key=None)
    return event._replace(source_event_key=f"review:{new_id('evt')}")


def _lasting_version(row: asyncpg.Record) -> NewEvent:
    """Return the next version of a note that was to end, as the one before said it."""
    payload = orjson.loads(row["payload"])
    payload["note"] |= {"version": row["version"] + 1, "previous": row["event_id"]}
    payload["note"].pop("held", None)
    payload["note"].pop("amended", None)
    return NewEvent(
        timestamp=to_microseconds(row["changed_at"]),
        channel=NOTE_CHANNEL,
        participants=tuple(row["participants"]),
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        context_id=row["context_id"],
        type=NOTE_TYPE,
        topic_hints=hints_of(note_of(payload, context_id=row["context_id"])),
    )


def _why_not(row: asyncpg.Record) -> str:
    if row["review"] is None:
        return f"{row['note_id']} is not under review: it was never held, or something else became of it since"
    decision = None if row["decision"] is None else decision_of(orjson.loads(row["decision"]))
    by = f" by {decision.by}" if decision is not None and decision.by else ""
    take_back = "" if row["review"] == "held" else "; take that back first"
    return f"{row['note_id']} is {row['review']} already{by}{take_back}"


def _listed(row: asyncpg.Record, replaced: Sequence[asyncpg.Record], evidence: Sequence[asyncpg.Record]) -> Json:
    """Return a note under review as lists show it."""
    payload = orjson.loads(row["payload"])
    held = payload["note"].get("held")
    amendment = amendment_of(payload)
    decision = decision_of(orjson.loads(row["decision"]))
    return {
        "note_id": row["note_id"],
        "event_id": row["event_id"],
        "state": row["review"],
        "since": rfc3339_of(row["since"]),
        "rule": held.get("rule", "") if isinstance(held, dict) else "",
        "kind": row["kind"],
        "topic": row["topic"],
        "importance": payload["note"]["importance"],
        "text": payload["text"],
        "speaker": speaker_of(payload),
        "source": payload["note"].get("source"),
        "context_id": row["context_id"],
        "said_at": rfc3339_of(row["occurred_at"]),
        "participants": list(row["participants"]),
        "replaces": [
            {
                "note_id": other["note_id"],
                "event_id": other["event_id"],
                "kind": other["kind"],
                "stands": other["live"],
                "text": (other["text"] or "")[:_SHOWN_REPLACED],
            }
            for other in replaced
            if other["held_id"] == row["note_id"]
        ],
        "evidence": [_evidence(other) for other in evidence if other["note_id"] == row["note_id"]],
        "amended_by": None if amendment is None else amendment.by,
        "amended_why": None if amendment is None else amendment.why,
        "decided_by": None if decision is None else decision.by,
        "reason": None if decision is None else decision.why,
    }


def _evidence(row: asyncpg.Record) -> Json:
    payload = orjson.loads(row["payload"])
    return {
        "event_id": row["event_id"],
        "at": rfc3339_of(row["occurred_at"]),
        "speaker": speaker_of(payload),
        "text": whole_text(payload)[:_SHOWN_EVIDENCE],
    }
