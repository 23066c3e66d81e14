"""What an erasure is asked for, what a dry run answers, and the receipt that a caller takes away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from myria import errors

Json = dict[str, Any]

SharedPolicy = Literal["keep", "remove"]
SHARED_POLICIES: tuple[SharedPolicy, ...] = get_args(SharedPolicy)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What is to be erased of one tenant: the union of all fields.

    Args:
        events: event ids.
        notes: note ids: every version of each, and the links between it and others.
        participants: names; takes events of scopes that hold nobody else. `shared` decides about scopes with others.
        contexts: context ids.
        query: words in this order, whatever their case, in a payload, hint, source key or context id.
        sources: pairs (channel, source_event_key).
    """

    events: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    participants: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    query: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    shared: SharedPolicy = "keep"

    def __post_init__(self) -> None:
        """Refuse a selection of nothing.

        Raises:
            InvalidArgument: nothing is named, or the policy is unknown.
        """
        if not (self.events or self.notes or self.participants or self.contexts or self.query.strip() or self.sources):
            raise errors.InvalidArgument(
                "name what to erase: an event, a note, a participant, a context, a source key or a query",
                field="selection",
            )
        if self.shared not in SHARED_POLICIES:
            raise errors.InvalidArgument(f"policy must be one of {', '.join(SHARED_POLICIES)}", field="policy")

    def summary(self) -> Json:
        """Return how the events were chosen, as counts: the record stays, so it must not quote what was erased."""
        counts = {
            "events": len(self.events),
            "notes": len(self.notes),
            "participants": len(self.participants),
            "contexts": len(self.contexts),
            "queries": int(bool(self.query.strip())),
            "sources": len(self.sources),
        }
        chosen: Json = {name: count for name, count in counts.items() if count}
        return chosen | ({"shared": self.shared} if self.participants else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasurePlan:
    """What an erasure would take: counts by place, and the first events by id, time and scope."""

    counts: Mapping[str, int]
    events: tuple[Json, ...]
    next_after: int | None
    shared_events: int

    def to_json(self) -> Json:
        """Return the answer of a dry run."""
        return {
            "dry_run": True,
            "counts": dict(self.counts),
            "shared_events": self.shared_events,
            "events": list(self.events),
            "next_after": self.next_after,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """A receipt as its caller keeps it. Only the caller has `key`; without it, nobody can prove that words are gone."""

    content: Json
    mac: str
    key: str | None = None

    def to_json(self) -> Json:
        """Return the content of a receipt file."""
        return {"receipt": self.content, "mac": self.mac} | ({"key": self.key} if self.key is not None else {})

    @classmethod
    def of(cls, value: Any) -> Receipt:
        """Return the receipt that a file's content describes.

        Raises:
            InvalidArgument: the content is not a receipt.
        """
        is_receipt = isinstance(value, dict) and isinstance(value.get("receipt"), dict)
        if not is_receipt or not isinstance(value.get("mac"), str) or not isinstance(value.get("key"), str | None):
            raise errors.InvalidArgument("this is no receipt of an erasure", field="receipt")
        return cls(content=value["receipt"], mac=value["mac"], key=value.get("key"))


@dataclass(frozen=True, kw_only=True, slots=True)
class StartBounds:
    """Limits for a new erasure; None means no limit.

    Args:
        expected: the number of events that a dry run told the caller.
        most: the most events that it may take.
        most_open: how many unfinished erasures the tenant may have, this one included.
    """

    expected: int | None = None
    most: int | None = None
    most_open: int | None = None

    def check(self, events: int, unfinished: int) -> None:
        """Check that an erasure of `events` events may begin while `unfinished` others are not done.

        Raises:
            ErasureChanged: the number of events is not the expected one.
            ErasureTooLarge: too many events, or too many unfinished erasures.
        """
        if self.expected is not None and events != self.expected:
            raise errors.ErasureChanged(
                f"this takes {events} events, not {self.expected}; look at a dry run again", events=events
            )
        if self.most is not None and events > self.most:
            raise errors.ErasureTooLarge(
                f"this takes {events} events; one call may take {self.most} (erasure.max_events): choose fewer, or use "
                "myria erase",
                events=events,
                limit=self.most,
            )
        if self.most_open is not None and unfinished >= self.most_open:
            raise errors.ErasureTooLarge(
                f"{unfinished} erasures have begun and are not done (erasure.max_open); wait for them",
                limit=self.most_open,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureStatus:
    """How far an erasure is: of its `events`, how many are `withdrawn` from answers and how many `erased`.

    `rows` counts the rows removed so far, by place. `failure` has code and message if the last attempt failed.
    """

    erasure_id: str
    state: str
    events: int
    withdrawn: int
    erased: int
    rows: Mapping[str, int]
    selected: Json
    by: str
    reason: str
    asked_at: str
    done_at: str | None
    is_worked_on: bool
    failure: Json | None
    receipt: Receipt | None

    def to_json(self) -> Json:
        """Return the answer of list_erasures for one erasure."""
        return {
            "erasure_id": self.erasure_id,
            "state": self.state,
            "events": self.events,
            "withdrawn": self.withdrawn,
            "erased": self.erased,
            "rows": dict(self.rows),
            "selected": self.selected,
            "by": self.by,
            "reason": self.reason,
            "asked_at": self.asked_at,
            "done_at": self.done_at,
            "in_progress": self.is_worked_on,
            "failure": self.failure,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceiptProof:
    """What was found when a receipt was checked; it holds where `problems` is empty."""

    problems: tuple[str, ...]
    examined: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return the answer of `myria verify --receipt`."""
        return {"ok": not self.problems, "problems": list(self.problems), "examined": dict(self.examined)}
