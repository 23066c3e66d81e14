"""Compute when a note expires, from its policy, its session, its last use and the time. Pure.

Reads leave out expired notes by themselves; maintenance withdraws them later, and builds see only that. An expired note
stays expired: what prolongs it (a use, an amendment, another note of its session) must come before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

from myria.db.clock import to_microseconds
from myria.notes.kinds import WARM_IMPORTANCE, Tier, policies, tier

EXPIRY_IMPORTANCE = 0.1
"""A note that was kept as worth being warm expires once it is cold and its importance has faded to this."""

SESSION_IDLE_S = 3600
"""Seconds after which a session is over, where neither the session nor a setting says otherwise."""

DAY_US = 86_400 * 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Lasting:
    """What decides when a note expires; times in microseconds since 1970 UTC.

    `session_ends_at` is when the note's session ends or ended, or the end of the days that the note itself names; None
    where it has neither. `restored` says that the note was brought back since its last version, and so never expires
    until somebody changes it.
    """

    kind: str
    importance: float
    anchor: bool
    created_at: int
    changed_at: int
    session_ends_at: int | None = None
    used_at: int | None = None
    restored: bool = False

    @classmethod
    def of(cls, row: Any) -> Lasting:
        """Return what a row of `notes.current` or `notes.of_events` says."""
        ends_at, used_at = row["session_ends_at"], row["used_at"]
        return cls(
            kind=row["kind"],
            importance=row["importance"],
            anchor=row["anchor"],
            created_at=to_microseconds(row["created_at"]),
            changed_at=to_microseconds(row["changed_at"]),
            session_ends_at=None if ends_at is None else to_microseconds(ends_at),
            used_at=None if used_at is None else to_microseconds(used_at),
            restored=row["reason"] == "restored",
        )

    @property
    def idle_since(self) -> int:
        """When the note was made, changed or used last."""
        return self.changed_at if self.used_at is None else max(self.changed_at, self.used_at)

    @property
    def expires_at(self) -> int | None:
        """When the note expires if nobody uses or changes it and nothing prolongs its session; None for never."""
        policy = policies().get(self.kind)
        if self.anchor or self.restored:
            return None
        if self.session_ends_at is not None:
            return self.session_ends_at
        if policy is None:
            return None
        if isinstance(policy.lifetime, int):
            # whole days of UTC, as memory-tools counts them: the day of the last change is the first
            return (self.changed_at // DAY_US + policy.lifetime) * DAY_US
        if policy.lifetime != "tier" or not policy.stale_days or self.tier(self.idle_since) == "permanent":
            return None
        days = float(policy.stale_days)
        if policy.decay_days and self.importance >= WARM_IMPORTANCE:
            days = max(days, policy.decay_days * log2(self.importance / EXPIRY_IMPORTANCE))
        return self.idle_since + round(days * DAY_US)

    def tier(self, now: int) -> Tier:
        """Return the note's tier at a moment."""
        age, idle = (max(0, now - since) / DAY_US for since in (self.created_at, self.idle_since))
        return tier(self.kind, self.importance, anchor=self.anchor, age_days=age, idle_days=idle)

    def is_stale(self, now: int) -> bool:
        """Tell whether the note is cold and unused for the days after which its kind counts as stale."""
        policy = policies().get(self.kind)
        if policy is None or not policy.stale_days or self.session_ends_at is not None:
            return False
        return now - self.idle_since >= policy.stale_days * DAY_US and self.tier(now) == "cold"

    def has_expired(self, now: int) -> bool:
        """Tell whether the note has expired at a moment."""
        expires_at = self.expires_at
        return expires_at is not None and expires_at <= now
