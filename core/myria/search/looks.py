"""A second look at the best hits of a search, asked for without a connection, and the pages that come of it.

The first hits of a ranking change places among themselves; what follows them stays. A later page ranks the same first
hits again, so that it knows which of them its place is among.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import orjson

from myria.db.database import Connection
from myria.db.queries import sql
from myria.errors import InternalError
from myria.index.block import Ints
from myria.log.payloads import speaker_of, whole_text
from myria.search.best import Hit, Key, Ranking
from myria.search.read_slots import Awaited, Turn
from myria.search.result import SearchResult
from myria.search.second_look.fusing import order, placed
from myria.search.second_look.looking import Look, SecondLook
from myria.search.second_look.source import ShownTo
from myria.search.successors import Succession

Ranker = Callable[[int, Key | None, Ints | None], Awaitable[Ranking]]
"""Ranks everything: so many hits, after a place, without those that were withdrawn late."""


class SecondLooks:
    """Moves the best hits of searches by what a model says of their texts."""

    def __init__(self, look: SecondLook) -> None:
        self._look = look

    async def ranking(
        self,
        connection: Connection,
        turn: Turn,
        result: SearchResult,
        question: str,
        *,
        ranked: Ranker,
        limit: int,
        after: Key | None,
    ) -> Ranking | None:
        """Return the best hits after a place, as the second look has them; None where there is none to be had.

        Args:
            result: the view that is searched.

        Raises:
            Awaited: the model is to be asked first.
        """
        settings = self._look.settings
        late = result.pinned.hidden.late
        # What was withdrawn since the first page holds its place among the first hits, and is left out afterwards.
        first = await ranked(max(settings.hits + 1, limit if after is None else 0), None, None)
        head, beyond = first.hits[: settings.hits], first.hits[settings.hits :]
        if not head:
            return None
        texts = await self._texts(connection, result, head, late)
        look = self._looked(turn, question, list(dict.fromkeys(texts.values())), _asker(result, head))
        if look is None:
            return None
        steps = [look.get(texts[hit.event_seq]) if hit.event_seq in texts else None for hit in head]
        moved = _moved(head, steps, settings.weight_percent, changed=first.changed, beyond=beyond)
        if after is not None:
            moved = [hit for hit in moved if hit.score < after.score]
        moved = [hit for hit in moved if late is None or not bool(np.isin(hit.event_seq, late))]
        rest = beyond
        if after is not None or (late is not None and len(late)):
            # The scores of moved hits are above all others: a place with such a score is among them.
            is_among = after is None or not beyond or after.score > beyond[0].score
            rest = (await ranked(limit, head[-1].key if is_among else after, late)).hits
        return replace(first, hits=(*moved, *rest)[:limit])

    def _looked(self, turn: Turn, question: str, texts: Sequence[str], asker: ShownTo) -> Look | None:
        """Return what the model said of these texts.

        Raises:
            Awaited: it was not asked yet.
        """
        if not texts:
            return None
        known = self._look.known(question, texts)
        if known is not None:
            return known
        key = ("second look", question)
        if key not in turn.waits.found:
            raise Awaited(key, partial(self._asked, question, texts, asker))
        # Of what came since, nothing is known: it counts as the mean.
        found: Look | None = turn.waits.found[key]
        return found

    async def _asked(self, question: str, texts: Sequence[str], asker: ShownTo, spent_s: float) -> Look | None:
        left = self._look.settings.deadline_s - spent_s
        return await self._look.ask(question, texts, asker=asker, within_s=left) if left > 0 else None

    async def _texts(
        self, connection: Connection, result: SearchResult, hits: Sequence[Hit], late: Ints | None
    ) -> dict[int, str]:
        """Return what the model is shown of hits, by event_seq; nothing of what is empty or was withdrawn."""
        shown = [hit for hit in hits if late is None or not bool(np.isin(hit.event_seq, late))]
        scopes = sorted({result.scope(hit).scope_id for hit in shown})
        wanted = [hit.event_seq for hit in shown]
        rows = await connection.fetch(sql("events.texts"), result.pinned.tenant, wanted, scopes)
        payloads = {row["event_seq"]: orjson.loads(row["payload"]) for row in rows}
        texts: dict[int, str] = {}
        for seq in wanted:
            text = whole_text(payloads[seq]) if seq in payloads else ""
            if text.strip():
                texts[seq] = self._look.shown(speaker_of(payloads[seq]), text)
        return texts


def _asker(result: SearchResult, hits: Sequence[Hit]) -> ShownTo:
    """Return for whom a model is asked of these hits.

    Raises:
        InternalError: a mask does not show one of them: a bug, and nothing was sent.
    """
    masks = result.pinned.masks
    scopes = {scope.scope_id: scope for scope in map(result.scope, hits)}
    if not all(masks.sees(scope.participants) for scope in scopes.values()):
        raise InternalError("a hit outside of the mask was about to be shown to a model")
    return ShownTo(tenant=result.pinned.tenant, participants=masks.participants, scopes=tuple(sorted(scopes)))


def _moved(
    head: Sequence[Hit],
    steps: Sequence[int | None],
    weight: int,
    *,
    changed: Succession | None,
    beyond: Sequence[Hit],
) -> list[Hit]:
    """Return the first hits in their new order, with scores that say their places."""
    scores = [hit.score for hit in head]
    places = order(scores, steps, weight)
    if changed is not None:
        # Both sides of a change are alike to a model; which is asked for, the ranking knows.
        sides = [at for at in places if head[at].event_seq in (changed.older, changed.newer)]
        kept = iter(sorted(sides))
        places = [next(kept) if at in sides else at for at in places]
    falling = placed(scores, beyond[0].score if beyond else 0)
    return [replace(head[at], score=score) for at, score in zip(places, falling, strict=True)]
