"""Checks the log: scopes are canonical, events belong to them, repeats were recognised.

Also checks what is derived from the log: the projections, the receipts of erasures, the vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from myria import errors
from myria.builds.verify.examination import Check, Examination
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index.embeddings.keeping import text_digest
from myria.log.payloads import dedupe_key, searchable_text, whole_text
from myria.log.scopes import canonical_participants, scope_key

_STREAM_ROWS = 1000

PROJECTIONS: Mapping[str, Mapping[str, str]] = {
    "withdrawals": {"withdrawn": "what withdrawal {by_event_seq} says of event {event_seq}"},
    "notes": {"notes": "note {note_id}: version {version} of event {event_seq}"},
    "sessions": {"sessions": "session {context_id} of scope {scope_id}, up to event {last_seq},"},
    "links": {"note_relations": "the link from {from_id} to {to_id} of event {event_seq}"},
    "feedback": {"tool_feedback": "feedback of event {event_seq}"},
    "evaluations": {"note_evaluations": "the rating of note {note_id} of event {event_seq}"},
    "turns": {
        "turns": "turn {turn_id} of {context_id}, event {event_seq},",
        "turn_sessions": "the state of the turns of {context_id} up to event {last_seq}",
    },
    "registrations": {"registrations": "the {kind} {id} of event {event_seq}"},
}
"""By check, the tables to compare with their views `*_of_log`, each with the words for a row in a message."""


async def participants(exam: Examination, check: Check) -> None:
    """Check that every scope is canonical, its key recomputes, its members are exactly its participants."""
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
    """Check that every event has a scope, its idempotency key recomputes, its transaction is of this database."""
    bound: int = await exam.connection.fetchval(sql("verify.transaction_bound"))
    total = await exam.count("events")
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


async def projected(exam: Examination, check: Check) -> None:
    """Check that a check's tables hold what the log gives when it is folded again; count the first table's rows."""
    tables = PROJECTIONS[check.name]
    check.examined = await exam.count(next(iter(tables)))
    for table, row_words in tables.items():
        for row in await exam.connection.fetch(sql("verify.differs_from_log"), exam.tenant, table):
            problem = (
                "is kept, but the log does not give it" if row["is_kept"] else "follows from the log, but is not kept"
            )
            check.fail(f"{row_words.format_map(orjson.loads(row['fields']))} {problem}")


async def receipts(exam: Examination, check: Check) -> None:
    """Check that the receipts of erasures follow from each other, and name what is kept for them."""
    check.examined, problems = await chain_problems(exam.connection, exam.tenant)
    for problem in problems:
        check.fail(problem)


async def named(connection: Connection, tenant: str, erasure_id: str) -> dict[str, Any]:
    """Return count and hash of each list of an erasure (events, renderings, word digests), as a receipt states them."""
    lists = {}
    for name, statement in (
        ("events", "erasure.numbers"),
        ("renderings", "erasure.renderings"),
        ("words", "erasure.word_digests"),
    ):
        list_hash, count = hashlib.sha256(), 0
        async for row in connection.cursor(sql(statement), tenant, erasure_id, prefetch=_STREAM_ROWS):
            list_hash.update(row[0].to_bytes(8, "big") if isinstance(row[0], int) else row[0])
            count += 1
        lists[name] = {"count": count, "sha256": list_hash.hexdigest()}
    return lists


async def chain_problems(connection: Connection, tenant: str) -> tuple[int, list[str]]:
    """Return the number of a tenant's receipts, and the problems of their chain."""
    rows = await connection.fetch(sql("erasure.receipts"), tenant)
    problems: list[str] = []
    previous_mac: bytes | None = None
    for position, row in enumerate(rows, 1):
        where = f"receipt {row['number']} of erasure {row['erasure_id']}"
        if row["number"] != position:
            problems.append(f"{where} stands in place {position}: one before it is missing")
        receipt_bytes = row["receipt"].encode()
        if not await connection.fetchval(sql("erasure.receipt_holds"), tenant, previous_mac, receipt_bytes, row["mac"]):
            problems.append(f"{where} does not follow from the one before it: it was changed, moved or forged")
        content = orjson.loads(row["receipt"])
        lists = await named(connection, tenant, row["erasure_id"])
        problems += [
            f"{where} names other {name} than those kept for it"
            for name, computed in lists.items()
            if content["lists"].get(name) != computed
        ]
        previous_mac = row["mac"]
    return len(rows), problems


async def vectors(exam: Examination, check: Check) -> None:
    """Check that every vector is of an event that may have one, with its model's dimensions; none is missing."""
    check.examined = await exam.count("event_vectors")
    for row in await exam.connection.fetch(sql("verify.vectors_differ"), exam.tenant):
        check.fail(f"the vector of event {row['event_seq']} by {row['model']} {row['what']}")
    for row in await exam.connection.fetch(sql("verify.texts_of_vectors"), exam.tenant):
        if row["others"]:
            check.fail(f"{row['others']} vectors by {row['model']} have other than its {row['size']} dimensions")
        if row["unsaid"]:
            check.fail(f"{row['unsaid']} vectors by {row['model']} are of texts that no event says")


async def vector_digests(exam: Examination, check: Check) -> None:
    """Check that every vector stands under the digest of the text that its event says."""
    async for row in exam.stream(check, "verify.vector_digests"):
        payload = orjson.loads(row["payload"])
        # Earlier releases read nothing but the text itself, and their vectors stay.
        if row["digest"] not in {text_digest(whole_text(payload)), text_digest(searchable_text(payload))}:
            check.fail(f"the vector of event {row['event_seq']} by {row['model']} is of another text")
