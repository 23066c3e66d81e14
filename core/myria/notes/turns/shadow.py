"""Shadow mode: what a host computed itself, compared with what the tools answered, before its cut-over (memory-tools).

A comparison runs beside the call and changes nothing of its answer. What is kept of it are figures: how many facts,
items and tokens each side had, and how many of them the other had not; nothing of what was said.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from myria.db.clock import rfc3339_of
from myria.db.database import ALL_TENANTS, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.notes.turns.facts import Fact
from myria.notes.turns.items import REFERENCE_BEGIN, REFERENCE_END, SUMMARY_PREFIX, Json, identity_of, text_of
from myria.notes.turns.model import Session
from myria.notes.turns.preparing import Prepared

Call = Literal["before", "after"]
Aspect = Literal["facts", "items", "tokens", "all"]
Outcome = Literal["same", "different", "unreadable", "dropped"]

Observer = Callable[[Call, Aspect, Outcome], None]

logger = logging.getLogger(__name__)

MOST_UNDER_WAY = 32
"""Comparisons of one process at once; further ones are dropped, and counted."""

_TOKENS_APART = 0.1
"""Share by which two estimates of tokens may differ and still count as the same."""

_OLD_FACT = re.compile(r"^- Fact\[[^\]\n]*\]\[(L\d)\] ([^=\n]*)=(.*) \(confidence=[^)\n]*\)$", re.MULTILINE)
_OLD_BLOCK = "Memory recall:"

_FORGOTTEN_AT_ONCE = 1_000

_Identity = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientResult:
    """What a host computed itself for a call, as far as it tells: its prompt or what it keeps, and its facts.

    `facts` are tier, key and value of each; `tokens` its estimate of its prompt.
    """

    items: tuple[dict[str, Any], ...] | None = None
    fact_ids: tuple[str, ...] | None = None
    facts: tuple[tuple[str, str, str], ...] | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How one aspect compares: what either side has, and what the other has not. Of tokens there are only the sums."""

    aspect: Aspect
    same: bool
    ours: int
    theirs: int
    missing: int = 0
    extra: int = 0


UNREADABLE = Comparison(aspect="all", same=False, ours=0, theirs=0)


def compare_before(prepared: Prepared, theirs: ClientResult) -> list[Comparison]:
    """Return how a prompt compares with that of the host: only what the host tells of."""
    found = []
    our_facts, our_items = _parts(prepared.items)
    if theirs.items is not None:
        their_facts, their_items = _parts(theirs.items)
        found.append(_sets("facts", our_facts, their_facts))
        found.append(_lists("items", our_items, their_items))
    elif theirs.fact_ids is not None:
        named = [[name.strip().lower() for name in ids] for ids in (prepared.fact_ids, theirs.fact_ids)]
        found.append(_sets("facts", *named))
    if theirs.tokens is not None:
        apart = abs(prepared.tokens - theirs.tokens)
        found.append(
            Comparison(
                aspect="tokens",
                same=apart <= _TOKENS_APART * max(prepared.tokens, theirs.tokens),
                ours=prepared.tokens,
                theirs=theirs.tokens,
            )
        )
    return found or [UNREADABLE]


def compare_after(facts: Iterable[Fact], given: Sequence[Json], theirs: ClientResult) -> list[Comparison]:
    """Return how what a turn kept compares with what the host keeps of it: only what the host tells of."""
    found = []
    if theirs.facts is not None:
        ours = [_identity(fact.tier, fact.key, fact.value) for fact in facts]
        found.append(_sets("facts", ours, [_identity(*fact) for fact in theirs.facts]))
    if theirs.items is not None:
        found.append(
            _lists("items", [identity_of(item) for item in given], [identity_of(item) for item in theirs.items])
        )
    return found or [UNREADABLE]


def _parts(items: Sequence[Json]) -> tuple[list[_Identity], list[str]]:
    """Return the facts that recalled memory in a prompt has, in today's form or the older one, and its other items."""
    facts: list[_Identity] = []
    others: list[str] = []
    for place, item in enumerate(items):
        text = text_of(item).strip()
        if item.get("role") == "user" and text.startswith(REFERENCE_BEGIN) and text.endswith(REFERENCE_END):
            facts += _facts_of_block(text)
            if place and others and items[place - 1].get("role") in ("developer", "system"):
                others.pop()  # the policy that comes with it
        elif item.get("role") in ("developer", "system") and text.startswith(_OLD_BLOCK):
            facts += [_identity(*match) for match in _OLD_FACT.findall(text)]
        elif not text.startswith(SUMMARY_PREFIX.strip()):
            others.append(identity_of(item))
    return facts, others


def _facts_of_block(text: str) -> list[_Identity]:
    try:
        facts = orjson.loads(text.removeprefix(REFERENCE_BEGIN).removesuffix(REFERENCE_END)).get("facts")
    except (orjson.JSONDecodeError, AttributeError):
        return []
    named = [fact for fact in facts if isinstance(fact, dict)] if isinstance(facts, list) else []
    return [_identity(*(str(fact.get(name, "")) for name in ("tier", "key", "value"))) for fact in named]


def _identity(tier: str, key: str, value: str) -> _Identity:
    return tier, key.strip().lower(), " ".join(value.lower().split())


def _sets(aspect: Aspect, ours: Sequence[Any], theirs: Sequence[Any]) -> Comparison:
    here, there = Counter(ours), Counter(theirs)
    missing, extra = (there - here).total(), (here - there).total()
    return Comparison(
        aspect=aspect, same=not missing and not extra, ours=len(ours), theirs=len(theirs), missing=missing, extra=extra
    )


def _lists(aspect: Aspect, ours: Sequence[str], theirs: Sequence[str]) -> Comparison:
    found = _sets(aspect, ours, theirs)
    same = list(ours) == list(theirs)
    return Comparison(
        aspect=aspect, same=same, ours=len(ours), theirs=len(theirs), missing=found.missing, extra=found.extra
    )


class ShadowLog:
    """Compares beside calls, and writes what comes of it. Losing some is allowed: a call never waits for it.

    Args:
        database: where comparisons are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._under_way: set[asyncio.Task[None]] = set()

    def note(
        self,
        tenant: str,
        session: Session,
        turn_id: str,
        call: Call,
        compare: Callable[[], list[Comparison]],
        *,
        on_compared: Observer,
    ) -> None:
        """Compare beside the call; it returns at once."""
        if len(self._under_way) >= MOST_UNDER_WAY:
            on_compared(call, "all", "dropped")
            return

        async def work() -> None:
            comparisons = await asyncio.to_thread(compare)
            for comparison in comparisons:
                on_compared(call, comparison.aspect, _outcome(comparison))
            await self._write(tenant, session, turn_id, call, comparisons)

        task = asyncio.create_task(work())
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Finish what is under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Not its words: they may hold what was compared.
            logger.error("a comparison failed: %s", type(error).__name__, extra={"action": "shadow_failed"})

    async def _write(
        self, tenant: str, session: Session, turn_id: str, call: Call, comparisons: Sequence[Comparison]
    ) -> None:
        try:
            async with self._database.write(tenant) as connection:
                # An erasure waits for this transaction, and a later one sees the erasure.
                await connection.execute(sql("llm.share_audit_lock"), lock_key("audit", tenant))
                await connection.execute(
                    sql("turns.keep_shadow"),
                    tenant,
                    session.owner,
                    session.context_id,
                    turn_id,
                    call,
                    [one.aspect for one in comparisons],
                    [one.same for one in comparisons],
                    [one.ours for one in comparisons],
                    [one.theirs for one in comparisons],
                    [one.missing for one in comparisons],
                    [one.extra for one in comparisons],
                )
        except MyriaError as error:
            logger.info("a comparison is not kept: %s", error.message, extra={"action": "shadow_dropped"})


def _outcome(comparison: Comparison) -> Outcome:
    if comparison.aspect == "all":
        return "unreadable"
    return "same" if comparison.same else "different"


async def shadow_report(database: Database, tenant: str, *, limit: int) -> dict[str, Any]:
    """Return how a tenant's answers compare with its hosts' own, in all and by call and aspect, and where they differ.

    Args:
        limit: turns that are named, the newest first.
    """
    async with database.read(tenant) as connection:
        aspects = await connection.fetch(sql("turns.shadows"), tenant)
        differing = await connection.fetch(sql("turns.shadows_differing"), tenant, limit)
    return {
        "aspects": [dict(row) for row in aspects],
        "differing": [{**dict(row), "compared_at": rfc3339_of(row["compared_at"])} for row in differing],
    }


async def forget_shadows(database: Database, age_s: float) -> None:
    """Remove comparisons that are older, of every tenant, a batch at a time. For the control plane."""
    while True:
        async with database.write(ALL_TENANTS) as connection:
            status = await connection.execute(sql("turns.forget_shadows"), age_s, _FORGOTTEN_AT_ONCE)
        if int(status.rpartition(" ")[2]) < _FORGOTTEN_AT_ONCE:
            return
