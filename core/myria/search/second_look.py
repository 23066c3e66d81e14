"""A second look at the best hits of a search by a model that reads question and texts, asked for without a connection.

What a model's numbers mean is its own affair. So relevance counts by how many standard deviations it differs from the
mean of the hits that were looked at, and it multiplies what the ranking found: a model that knows little of who is
who, of times and of what stands around a text, does not throw away what the ranking knows of these. Integers only: the
same answers of a model give the same order.

The first hits of a ranking change places among themselves; what follows them stays. A later page ranks the same first
hits again, so that it knows which of them its place is among.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from typing import Final, Protocol

import orjson

from myria.db.database import Connection
from myria.db.queries import sql
from myria.errors import InternalError, ModelFailed
from myria.index.block import Ints
from myria.log.payloads import speaker_of, whole_text
from myria.search.explaining import Placed
from myria.search.ranking import Hit, Key, Ranking
from myria.search.read_slots import Awaited, ReadSlot
from myria.search.result import SearchResult
from myria.search.successors import Succession
from myria.settings import SecondLookSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTo:
    """Who is shown texts by a model: `participants` are whom the masks in force name, `scopes` those of the texts."""

    tenant: str
    participants: tuple[str, ...]
    scopes: tuple[int, ...]


class RelevanceSource(Protocol):
    """Tells how relevant texts are to a question."""

    async def relevance(self, question: str, texts: Sequence[str], *, asker: ShownTo, within_s: float) -> list[float]:
        """Return how relevant each text is to a question, on a scale of its own.

        Raises:
            ModelFailed: by its kind; nothing usable came within the time given.
        """
        ...

    async def close(self) -> None:
        """End what it holds."""
        ...


STEPS: Final = 10_000
"""Relevance is rounded to so many steps between the least and the greatest of one reply."""

_UNIT: Final = 256
_LEAST: Final = -2 * _UNIT
_MOST: Final = 4 * _UNIT
"""Bounds of what relevance counts, in 1/256 standard deviations."""
_LEAST_PERCENT: Final = 10
"""The least that is left of a score, in percent."""


def quantised(relevance: Sequence[float]) -> list[int]:
    """Return relevances, of which there is at least one, as steps between the least and the greatest of them."""
    least, most = min(relevance), max(relevance)
    if most <= least:
        return [0] * len(relevance)
    # Halved first: the difference of two large numbers may be none.
    span = most / 2 - least / 2
    return [round((value / 2 - least / 2) / span * STEPS) for value in relevance]


def order(scores: Sequence[int], steps: Sequence[int | None], weight: int) -> list[int]:
    """Return the indices of hits in their new order.

    Args:
        scores: the ranking's scores of the hits, best first.
        steps: beside them, how relevant the model found each; None, which counts as the mean, if it saw no text.
        weight: percent that a score rises for each standard deviation above the mean.
    """
    seen = [step for step in steps if step is not None]
    if not seen:
        return list(range(len(scores)))
    mean = sum(seen) // len(seen)
    deviation = max(1, isqrt(sum((step - mean) ** 2 for step in seen) // len(seen)))
    new_scores = []
    for score, step in zip(scores, steps, strict=True):
        gain = 0 if step is None else min(_MOST, max(_LEAST, (step - mean) * _UNIT // deviation))
        new_scores.append(score * max(_LEAST_PERCENT * _UNIT, 100 * _UNIT + weight * gain))
    return sorted(range(len(scores)), key=lambda index: (-new_scores[index], index))


def placed(scores: Sequence[int], beyond: int) -> list[int]:
    """Return strictly falling scores for the hits in their new order, all above `beyond`.

    A score then names a place between any two hits, which cursors need.

    Args:
        scores: those of the hits in their old order, best first.
        beyond: the greatest score among the hits that were not looked at.
    """
    falling: list[int] = []
    previous = beyond
    for score in reversed(scores):
        previous = max(score, previous + 1)
        falling.append(previous)
    return falling[::-1]


logger = logging.getLogger(__name__)

Look = Mapping[str, int]
"""How relevant each text is to one question, in steps."""

_KEPT: Final = 500

Ranker = Callable[[int, Key | None, Ints | None], Awaitable[Ranking]]
"""Ranks everything: so many hits, after a place, without those that were withdrawn late."""


class SecondLook:
    """Moves the best hits of searches by what a model says of their texts, within a request's time or not at all.

    It keeps the model's last answers: pages of one answer show it the same texts.
    """

    def __init__(self, source: RelevanceSource, settings: SecondLookSettings) -> None:
        self._settings = settings
        self._source = source
        self._known: OrderedDict[bytes, list[int]] = OrderedDict()
        self._answers = 0
        self._failed = 0

    def figures(self) -> dict[str, int]:
        """Return how many answers the model gave and how many failed since the start."""
        return {"looked": self._answers, "failed": self._failed}

    async def close(self) -> None:
        """Close connections and finish what is being written."""
        await self._source.close()

    async def ranking(
        self,
        connection: Connection,
        slot: ReadSlot,
        result: SearchResult,
        question: str,
        *,
        ranked: Ranker,
        limit: int,
        after: Key | None,
    ) -> Ranking | None:
        """Rank, let the model reorder the first hits, and return the best hits.

        None if there is no text to look at or the model gave nothing usable.

        Args:
            result: the view that is searched.
            ranked: ranks without the model.
            limit: how many hits to return.
            after: only hits after this place, None for a first page.

        Raises:
            Awaited: the model is to be asked first.
        """
        settings = self._settings
        late = result.snapshot.hidden.late
        withdrawn = frozenset(late.tolist())
        # What was withdrawn since the first page holds its place among the first hits, and is left out afterwards.
        first = await ranked(max(settings.hits + 1, limit if after is None else 0), None, None)
        head, beyond = first.hits[: settings.hits], first.hits[settings.hits :]
        if not head:
            return None
        texts = await self._texts(connection, result, [hit for hit in head if hit.event_seq not in withdrawn])
        step_of_text = self._steps_of_texts(slot, question, list(dict.fromkeys(texts.values())), _asker(result, head))
        if step_of_text is None:
            return None
        steps = [step_of_text.get(texts[hit.event_seq]) if hit.event_seq in texts else None for hit in head]
        moved = _reorder(head, steps, settings.weight_percent, changed=first.changed, beyond=beyond)
        moved = [hit for hit in moved if hit.event_seq not in withdrawn and (after is None or hit.score < after.score)]
        rest, shares = beyond, first.shares
        if after is not None or withdrawn:
            # The scores of moved hits are above all others: a place with such a score is among them.
            is_among = after is None or not beyond or after.score > beyond[0].score
            following = await ranked(limit, head[-1].key if is_among else after, late)
            rest, shares = following.hits, {**shares, **following.shares}
        expected = {seq: _placed_among(moved, seq) or place for seq, place in first.expected.items()}
        return replace(first, hits=(*moved, *rest)[:limit], shares=shares, expected=expected)

    def _steps_of_texts(self, slot: ReadSlot, question: str, texts: Sequence[str], asker: ShownTo) -> Look | None:
        """Return the model's answer about these texts; None for no texts, or if it gave none.

        Raises:
            Awaited: the model was not asked yet.
        """
        if not texts:
            return None
        steps = self._known.get(_key(question, texts))
        if steps is not None:
            self._known.move_to_end(_key(question, texts))
            return dict(zip(texts, steps, strict=True))
        key = ("second look", question)
        if key not in slot.found:
            raise Awaited(key, partial(self._ask, question, texts, asker))
        # Texts that came after the model was asked are not in its answer: they count as the mean.
        awaited: Look | None = slot.found[key]
        return awaited

    async def _ask(self, question: str, texts: Sequence[str], asker: ShownTo, spent_s: float) -> Look | None:
        """Ask the model and keep its answer; None if no usable one comes in what `spent_s` leaves of the deadline."""
        seconds_left = self._settings.deadline_s - spent_s
        if seconds_left <= 0:
            return None
        try:
            steps = quantised(await self._source.relevance(question, texts, asker=asker, within_s=seconds_left))
        except ModelFailed as failure:
            self._failed += 1
            logger.info("a question goes without a second look: %s", failure.message, extra={"action": "no_look"})
            return None
        except Exception:
            self._failed += 1
            logger.exception("a second look failed", extra={"action": "no_look"})
            return None
        self._answers += 1
        self._known[_key(question, texts)] = steps
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return dict(zip(texts, steps, strict=True))

    async def _texts(self, connection: Connection, result: SearchResult, hits: Sequence[Hit]) -> dict[int, str]:
        """Return the texts of hits, with speakers, for the model, by event_seq; hits without text are left out."""
        scopes = sorted({result.scope(hit).scope_id for hit in hits})
        event_seqs = [hit.event_seq for hit in hits]
        rows = await connection.fetch(sql("events.texts"), result.snapshot.tenant, event_seqs, scopes)
        payloads = {row["event_seq"]: orjson.loads(row["payload"]) for row in rows}
        texts: dict[int, str] = {}
        for seq in event_seqs:
            text = whole_text(payloads[seq]) if seq in payloads else ""
            if text.strip():
                speaker = speaker_of(payloads[seq])
                texts[seq] = (text if speaker is None else f"{speaker}: {text}")[: self._settings.text_characters]
        return texts


def _key(question: str, texts: Sequence[str]) -> bytes:
    return hashlib.sha256(repr((question, *texts)).encode()).digest()


def _asker(result: SearchResult, hits: Sequence[Hit]) -> ShownTo:
    """Return for whom the model is asked, after checking that the masks show every one of these hits.

    Raises:
        InternalError: a mask does not show one of them: a bug, and nothing was sent.
    """
    masks = result.snapshot.masks
    scopes = {scope.scope_id: scope for scope in map(result.scope, hits)}
    if not all(masks.sees(scope.participants) for scope in scopes.values()):
        raise InternalError("a hit outside of the mask was about to be shown to a model")
    return ShownTo(tenant=result.snapshot.tenant, participants=masks.participants, scopes=tuple(sorted(scopes)))


def _placed_among(moved: Sequence[Hit], event_seq: int) -> Placed | None:
    """Return where an expected event stands among the first hits in their new order; None if it is none of them."""
    for place, hit in enumerate(moved, 1):
        if hit.event_seq == event_seq:
            return Placed(stage="no_room", place=place, score=hit.score)
    return None


def _reorder(
    head: Sequence[Hit],
    steps: Sequence[int | None],
    weight: int,
    *,
    changed: Succession | None,
    beyond: Sequence[Hit],
) -> list[Hit]:
    """Return the first hits in their new order, with new scores that fall in that order.

    Args:
        changed: the two sides of a change; if both are among the hits they keep their order.
        beyond: the hits that follow and were not looked at.
    """
    scores = [hit.score for hit in head]
    order_of_hits = order(scores, steps, weight)
    if changed is not None:
        # Both sides of a change are alike to a model; which is asked for, the ranking knows.
        sides = [index for index in order_of_hits if head[index].event_seq in (changed.older, changed.newer)]
        ordered_sides = iter(sorted(sides))
        order_of_hits = [next(ordered_sides) if index in sides else index for index in order_of_hits]
    falling = placed(scores, beyond[0].score if beyond else 0)
    return [replace(head[index], score=score) for index, score in zip(order_of_hits, falling, strict=True)]
