"""The hits of a page that are told: where tokens are bounded, a fact takes its room once (`myria.text.restating`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from myria.search.best import Hit
from myria.text.restating import alike

MOST = 64
"""Hits of a page that are compared: more than a bounded answer shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldHits:
    """Hits in the order of the ranking, in groups that say the same. Of each the newest is `shown`, in the place of the
    first, and stands for the others."""

    hits: tuple[Hit, ...]
    groups: tuple[tuple[int, ...], ...]
    said: Mapping[int, tuple[Hashable, str]]

    @classmethod
    def of(cls, hits: Sequence[Hit], said: Mapping[int, tuple[Hashable, str]]) -> ToldHits:
        """Return hits as they are told.

        Args:
            said: who says what, by event_seq; a hit that is not in it is told by itself.
        """
        groups = (
            alike([said.get(hit.event_seq, (hit.event_seq, "")) for hit in hits])
            if said
            else [[at] for at in range(len(hits))]
        )
        return cls(hits=tuple(hits), groups=tuple(map(tuple, groups)), said=said)

    @property
    def shown(self) -> tuple[Hit, ...]:
        """The hits that stand for all."""
        return tuple(map(self._newest, self.groups))

    @property
    def alike(self) -> dict[int, int]:
        """For how many others a hit stands, by event_seq, where there are any."""
        return {self._newest(group).event_seq: len(group) - 1 for group in self.groups if len(group) > 1}

    def covered(self, taken: int) -> int:
        """Return how many hits come before all that the first so many shown ones do not stand for."""
        return self.groups[taken][0] if taken < len(self.groups) else len(self.hits)

    def within(self, taken: int) -> ToldHits:
        """Return what is told where no more than the first so many fit: a page stands for what comes before the next
        one and for nothing of that."""
        covered = self.covered(taken)
        if all(group[-1] < covered for group in self.groups[:taken]):
            return self
        return ToldHits.of(self.hits[:covered], self.said)

    def _newest(self, group: Sequence[int]) -> Hit:
        return max((self.hits[at] for at in group), key=lambda hit: (hit.timestamp, hit.event_seq))
