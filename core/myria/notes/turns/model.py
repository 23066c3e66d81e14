"""What a turn is in the log: an event for each item, notes for its facts, and a mark that says that it is complete.

The mark is an internal event of a reserved type. It names the items, and the mark of the turn before: so turns of one
session follow each other, whoever stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.ids import new_id
from myria.log.withdrawal.model import Withdrawal, withdrawal_event
from myria.notes.drafting import NoteText
from myria.notes.model import note_event
from myria.notes.turns.facts import Fact, KnownFact, Tier
from myria.notes.turns.items import Json, packed, text_of

TURN_TYPE = "myria.turn"
INPUT_TYPE, OUTPUT_TYPE = "input_item", "output_item"
CHANNEL_PREFIX = "turn:"

KIND_OF_TIER: Mapping[Tier, str] = {"L0": "fact_l0", "L1": "fact_l1", "L2": "fact_l2"}
_TIERS: Mapping[str, Tier] = {kind: tier for tier, kind in KIND_OF_TIER.items()}
_OWNER_SHOWN = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Whose turns follow each other: of `own` participants, of a project and a session.

    `participants` are canonical, those of its events: `own` and the user.
    """

    own: tuple[str, ...]
    participants: tuple[str, ...]
    project: str
    session_id: str

    @property
    def owner(self) -> bytes:
        """What tells it from a session of others with the same names: 32 bytes."""
        return _owner(self.own)

    @property
    def context_id(self) -> str:
        """The context of its events: a slash in the project is escaped, so that no two sessions share one."""
        return f"{self.project.replace('%', '%25').replace('/', '%2F')}/{self.session_id}"

    @property
    def channel(self) -> str:
        """The channel of its events."""
        return f"{CHANNEL_PREFIX}{self.context_id}"

    def key(self, name: str) -> str:
        """Return the source key of one of its events."""
        return f"{name}@{self.owner.hex()[:_OWNER_SHOWN]}"


@lru_cache(maxsize=16_384)
def _owner(own: tuple[str, ...]) -> bytes:
    return digest(["turns", *own])


def item_events(
    session: Session,
    turn_id: str,
    given: Sequence[Json],
    came_out: Sequence[Json],
    *,
    at: int,
    user_id: str | None,
) -> list[NewEvent]:
    """Return the events of a turn's items, with their ids.

    Args:
        at: in microseconds since 1970 UTC.
    """
    channel, context_id, source_key = session.channel, session.context_id, session.key("")
    items = [(f"{turn_id}-in-{place}", INPUT_TYPE, item) for place, item in enumerate(given)]
    items += [(f"{turn_id}-out-{place}", OUTPUT_TYPE, item) for place, item in enumerate(came_out)]
    return [
        NewEvent(
            timestamp=at,
            channel=channel,
            participants=session.participants,
            payload_json=orjson.dumps(
                {
                    "text": text_of(item),
                    "speaker": _speaker(item, kind, user_id),
                    "item": packed(item),
                    "item_id": name,
                },
                option=orjson.OPT_SORT_KEYS,
            ),
            source_event_key=name + source_key,
            context_id=context_id,
            type=kind,
            event_id=new_id("evt"),
        )
        for name, kind, item in items
    ]


def _speaker(item: Json, kind: str, user_id: str | None) -> str:
    role: str = item.get("role") or ("tool" if "output" in item else "")
    if role == "user" or (not role and kind == INPUT_TYPE):
        return user_id or "user"
    return role or "assistant"


def mark_event(
    session: Session, turn_id: str, items: Sequence[str], facts: Sequence[str], *, previous: str | None, at: int
) -> NewEvent:
    """Return the mark of a turn.

    Args:
        items: the ids of its events.
        facts: the ids of the notes of the facts that it says, also of those that were known.
        previous: the mark of the turn before, None for the first.
    """
    said = {
        "id": turn_id,
        "owner": session.owner.hex(),
        "items": list(items),
        "facts": list(facts),
        "previous": previous,
        "project": session.project,
        "session_id": session.session_id,
    }
    return NewEvent(
        timestamp=at,
        channel=session.channel,
        participants=session.participants,
        payload_json=orjson.dumps({"turn": said}, option=orjson.OPT_SORT_KEYS),
        source_event_key=session.key(turn_id),
        context_id=session.context_id,
        type=TURN_TYPE,
        internal=True,
        event_id=new_id("evt"),
    )


def fact_events(
    participants: tuple[str, ...],
    context_id: str,
    fact: Fact,
    *,
    note_id: str,
    before: KnownFact | None,
    is_live: bool,
    at: int,
    user_id: str | None,
    lasts_days: int | None,
) -> list[NewEvent]:
    """Return the next version of a fact, and the withdrawal of the one that it replaces.

    Args:
        participants: canonical; who may see it.
        lasts_days: for how many days in UTC it holds; None where that is what its kind says.
        before: its newest version, where there is one.
        is_live: whether that is not withdrawn.
    """
    note = NoteText(
        content=fact.text,
        kind=KIND_OF_TIER[fact.tier],
        topic=fact.key,
        keywords=(fact.fact_id,),
        importance=fact.confidence,
        source=None,
        lifetime="permanent",
        anchor=False,
        session_id=context_id,
    )
    made = note_event(
        note,
        participants,
        note_id=note_id,
        version=1 if before is None else before.version + 1,
        timestamp=at,
        speaker=user_id,
        previous=None if before is None else before.event_id,
    )
    payload = orjson.loads(made.payload_json)
    payload["note"]["fact"] = fact.to_json()
    if lasts_days is not None:
        payload["note"]["lasts_days"] = lasts_days
    event_id = new_id("evt")
    made = made._replace(payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS), event_id=event_id)
    if before is None or not is_live:
        return [made]
    withdrawal = Withdrawal(reason="superseded", events=(before.event_id,), superseded_by=event_id)
    return [made, withdrawal_event(withdrawal, participants, timestamp=before.at)]


def fact_of(kind: str, payload: Mapping[str, Any]) -> Fact:
    """Return the fact that a version of a note says. One that was amended elsewhere says it by its text alone."""
    about = payload["note"]
    said = about.get("fact")
    if not isinstance(said, dict):
        keywords = about.get("keywords") or [about["topic"]]
        text = payload["text"].removeprefix(f"{about['topic']}: ")
        said = {"fact_id": keywords[0], "key": about["topic"], "value": text, "confidence": about["importance"]}
    return Fact(
        fact_id=said["fact_id"],
        key=said["key"],
        value=said["value"],
        tier=_TIERS[kind],
        confidence=said["confidence"],
    )
