"""The log: scopes are canonical, events belong to them, repeats were recognised; and the notes that follow from it."""

from __future__ import annotations

import orjson

from myria import errors
from myria.builds.verify.examination import Examination
from myria.builds.verify.receipts import chain_problems
from myria.builds.verify.report import Check
from myria.db.queries import sql
from myria.log.payloads import dedupe_key
from myria.log.scopes import canonical_participants, scope_key


async def participants(exam: Examination, check: Check) -> None:
    """Every scope is canonical, its key recomputes, its members are exactly its participants."""
    async for row in exam.stream(check, "verify.scopes"):
        names = list(row["participants"])
        where = f"scope {row['scope_id']}"
        try:
            canonical = list(canonical_participants(names))
        except errors.InvalidParticipants as error:
            check.fail(f"{where}: {error.message}")
            continue
        if canonical != names:
            check.fail(f"{where}: its participants are not in canonical form")
        if scope_key(names) != row["scope_key"]:
            check.fail(f"{where}: scope_key is not the SHA-256 of its participants")
        if list(row["members"]) != sorted(names):
            missing = len(set(names) - set(row["members"]))
            check.fail(f"{where}: {missing} participants are missing from scope_members")
    for row in await exam.connection.fetch(sql("verify.stray_members"), exam.tenant):
        check.fail(f"scope {row['scope_id']}: scope_members names a participant that the scope does not have")


async def events(exam: Examination, check: Check) -> None:
    """Every event has a scope, its idempotency key recomputes, its transaction is of this database."""
    bound: int = await exam.connection.fetchval(sql("verify.transaction_bound"))
    total = await exam.count("verify.count_events")
    async for row in exam.stream(check, "verify.events", total):
        where = f"event {row['event_id']} ({row['event_seq']})"
        if not row["has_scope"]:
            check.fail(f"{where}: its scope does not exist")
        if row["xid"] >= bound:
            check.fail(
                f"{where}: its transaction number {row['xid']} has not been given out here; "
                "was this database copied from another server without its transactions?"
            )
        key = row["source_event_key"]
        expected = None if key is None else dedupe_key(row["channel"], key)
        if expected != row["dedupe_key"]:
            check.fail(f"{where}: dedupe_key is not the SHA-256 of its channel and source_event_key")


async def withdrawals(exam: Examination, check: Check) -> None:
    """The projection of withdrawals is the fold of the log."""
    check.examined += await exam.count("verify.count_withdrawn")
    for row in await exam.connection.fetch(sql("verify.withdrawn"), exam.tenant):
        where = f"what withdrawal {row['by_event_seq']} says of event {row['event_seq']}"
        if not row["is_stored"]:
            check.fail(f"{where} is not in the projection: readers would still show the event")
        elif not row["is_folded"]:
            check.fail(f"{where} is in the projection, but not in the log")
        else:
            check.fail(f"{where} differs from what the log gives")


async def notes(exam: Examination, check: Check) -> None:
    """The notes are what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "notes")
    await _compare(exam, check, "notes", "note {note_id}: version {version} of event {event_seq}")


async def sessions(exam: Examination, check: Check) -> None:
    """The sessions are what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "sessions")
    await _compare(exam, check, "sessions", "session {context_id} of scope {scope_id}, up to event {last_seq},")


async def links(exam: Examination, check: Check) -> None:
    """The links between notes are what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "note_relations")
    await _compare(exam, check, "note_relations", "the link from {from_id} to {to_id} of event {event_seq}")


async def feedback(exam: Examination, check: Check) -> None:
    """What is kept of feedback on tools is what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "tool_feedback")
    await _compare(exam, check, "tool_feedback", "feedback of event {event_seq}")


async def evaluations(exam: Examination, check: Check) -> None:
    """What is kept of ratings of notes is what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "note_evaluations")
    await _compare(exam, check, "note_evaluations", "the rating of note {note_id} of event {event_seq}")


async def turns(exam: Examination, check: Check) -> None:
    """The turns, and how far their sessions have come, are what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "turns")
    await _compare(exam, check, "turns", "turn {turn_id} of {context_id}, event {event_seq},")
    await _compare(exam, check, "turn_sessions", "the state of the turns of {context_id} up to event {last_seq}")


async def registrations(exam: Examination, check: Check) -> None:
    """The agents and sessions of REST are what the log gives when it is folded anew."""
    check.examined = await exam.count("verify.count_kept", "registrations")
    await _compare(exam, check, "registrations", "the {kind} {id} of event {event_seq}")


async def _compare(exam: Examination, check: Check, projection: str, what: str) -> None:
    """Fail for each row that a table has and its view `*_of_log` has not, or the other way round.

    Args:
        what: how a row is called, with its columns as fields.
    """
    for row in await exam.connection.fetch(sql("verify.differs_from_log"), exam.tenant, projection):
        where = "is kept, but the log does not give it" if row["is_kept"] else "follows from the log, but is not kept"
        check.fail(f"{what.format_map(orjson.loads(row['fields']))} {where}")


async def receipts(exam: Examination, check: Check) -> None:
    """The receipts of erasures follow from each other, and name what is kept for them."""
    check.examined, problems = await chain_problems(exam.connection, exam.tenant)
    for problem in problems:
        check.fail(problem)
