"""Shadow mode: compare a host's own results with the tools' answers, before the host switches over (memory-tools).

A comparison runs beside the call and does not change its answer. Only figures are kept: how many facts, items and
tokens each side had, and how many of them the other lacked; no text is kept.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson

from myria.db.clock import rfc3339_of
from myria.db.database import ALL_TENANTS, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import MyriaError
from myria.notes.turns.facts import Fact
from myria.notes.turns.items import REFERENCE_BEGIN, REFERENCE_END, SUMMARY_PREFIX, Json, identity_of, text_of
from myria.notes.turns.model import Session

if TYPE_CHECKING:  # the control plane forgets comparisons, and would import all of search for this
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

_DELETED_TOGETHER = 1_000

_Identity = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientResult:
    """What a host computed itself for a call: the items of its prompt or those it keeps, and its facts.

    `facts` has each fact's tier, key and value; `tokens` is the host's estimate for its prompt. None: it did not tell.
    """

    items: tuple[dict[str, Any], ...] | None = None
    fact_ids: tuple[str, ...] | None = None
    facts: tuple[tuple[str, str, str], ...] | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How one aspect compares: how many each side has, how many of theirs are `missing` here, and how many of ours are
    `extra`. For tokens there are only the two sums."""

    aspect: Aspect
    same: bool
    ours: int
    theirs: int
    missing: int = 0
    extra: int = 0


UNREADABLE = Comparison(aspect="all", same=False, ours=0, theirs=0)


def compare_before(prepared: Prepared, theirs: ClientResult) -> list[Comparison]:
    """Compare a prompt with the host's, in the aspects that the host gives."""
    comparisons = []
    our_facts, our_items = _facts_and_items(prepared.items)
    if theirs.items is not None:
        their_facts, their_items = _facts_and_items(theirs.items)
        comparisons.append(_compare_sets("facts", our_facts, their_facts))
        comparisons.append(_compare_lists("items", our_items, their_items))
    elif theirs.fact_ids is not None:
        fact_ids = [[name.strip().lower() for name in ids] for ids in (prepared.fact_ids, theirs.fact_ids)]
        comparisons.append(_compare_sets("facts", *fact_ids))
    if theirs.tokens is not None:
        difference = abs(prepared.tokens - theirs.tokens)
        comparisons.append(
            Comparison(
                aspect="tokens",
                same=difference <= _TOKENS_APART * max(prepared.tokens, theirs.tokens),
                ours=prepared.tokens,
                theirs=theirs.tokens,
            )
        )
    return comparisons or [UNREADABLE]


def compare_after(facts: Iterable[Fact], given: Sequence[Json], theirs: ClientResult) -> list[Comparison]:
    """Compare what a turn kept with what the host keeps of it, in the aspects that the host gives."""
    comparisons = []
    if theirs.facts is not None:
        ours = [_identity(fact.tier, fact.key, fact.value) for fact in facts]
        comparisons.append(_compare_sets("facts", ours, [_identity(*fact) for fact in theirs.facts]))
    if theirs.items is not None:
        comparisons.append(
            _compare_lists("items", [identity_of(item) for item in given], [identity_of(item) for item in theirs.items])
        )
    return comparisons or [UNREADABLE]


def _facts_and_items(items: Sequence[Json]) -> tuple[list[_Identity], list[str]]:
    """Divide a prompt: the facts in its recalled memory, of today's form or the older one, and its other items' ids."""
    facts: list[_Identity] = []
    others: list[str] = []
    for place, item in enumerate(items):
        text = text_of(item).strip()
        if item.get("role") == "user" and text.startswith(REFERENCE_BEGIN) and text.endswith(REFERENCE_END):
            facts += _facts_of_block(text)
            if place and others and items[place - 1].get("role") in ("developer", "system"):
                others.pop()  # the policy message that always stands before the block
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
    objects = [fact for fact in facts if isinstance(fact, dict)] if isinstance(facts, list) else []
    return [_identity(*(str(fact.get(name, "")) for name in ("tier", "key", "value"))) for fact in objects]


def _identity(tier: str, key: str, value: str) -> _Identity:
    return tier, key.strip().lower(), " ".join(value.lower().split())


def _compare_sets(aspect: Aspect, ours: Sequence[Any], theirs: Sequence[Any]) -> Comparison:
    our_counts, their_counts = Counter(ours), Counter(theirs)
    missing, extra = (their_counts - our_counts).total(), (our_counts - their_counts).total()
    return Comparison(
        aspect=aspect, same=not missing and not extra, ours=len(ours), theirs=len(theirs), missing=missing, extra=extra
    )


def _compare_lists(aspect: Aspect, ours: Sequence[str], theirs: Sequence[str]) -> Comparison:
    as_sets = _compare_sets(aspect, ours, theirs)
    same = list(ours) == list(theirs)
    return Comparison(
        aspect=aspect, same=same, ours=len(ours), theirs=len(theirs), missing=as_sets.missing, extra=as_sets.extra
    )


class ShadowLog:
    """Compares beside calls, and stores the comparisons. A call never waits for that, so some may be lost.

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
        """Start a comparison as a task of its own, and return at once; with too many under way, drop it.

        Args:
            compare: computes the comparisons, in a thread.
            on_compared: told the outcome of each, for metrics.
        """
        if len(self._under_way) >= MOST_UNDER_WAY:
            on_compared(call, "all", "dropped")
            return

        async def compare_and_store() -> None:
            comparisons = await asyncio.to_thread(compare)
            for comparison in comparisons:
                on_compared(call, comparison.aspect, _outcome(comparison))
            await self._store(tenant, session, turn_id, call, comparisons)

        task = asyncio.create_task(compare_and_store())
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Wait for the comparisons under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Only the error's type: its message may quote what was compared.
            logger.error("a comparison failed: %s", type(error).__name__, extra={"action": "shadow_failed"})

    async def _store(
        self, tenant: str, session: Session, turn_id: str, call: Call, comparisons: Sequence[Comparison]
    ) -> None:
        try:
            async with self._database.write(tenant) as connection:
                # With the shared lock an erasure waits for this transaction, and this one sees any erasure before it.
                await connection.execute(sql("llm.share_audit_lock"), lock_key("audit", tenant))
                await connection.execute(
                    sql("turns.keep_shadow"),
                    tenant,
                    session.owner,
                    session.context_id,
                    turn_id,
                    call,
                    [comparison.aspect for comparison in comparisons],
                    [comparison.same for comparison in comparisons],
                    [comparison.ours for comparison in comparisons],
                    [comparison.theirs for comparison in comparisons],
                    [comparison.missing for comparison in comparisons],
                    [comparison.extra for comparison in comparisons],
                )
        except MyriaError as error:
            logger.info("a comparison is not kept: %s", error.message, extra={"action": "shadow_dropped"})


def _outcome(comparison: Comparison) -> Outcome:
    if comparison.aspect == "all":
        return "unreadable"
    return "same" if comparison.same else "different"


async def shadow_report(database: Database, tenant: str, *, limit: int) -> dict[str, Any]:
    """Return how a tenant's answers compare with its hosts' own, by call and aspect, and the newest turns that differ.

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
    """Delete comparisons older than `age_s`, of every tenant, a batch at a time. For the control plane."""
    while True:
        async with database.write(ALL_TENANTS) as connection:
            status = await connection.execute(sql("turns.forget_shadows"), age_s, _DELETED_TOGETHER)
        # The status of the command ends with the number of rows, such as "DELETE 1000".
        if int(status.rpartition(" ")[2]) < _DELETED_TOGETHER:
            return
