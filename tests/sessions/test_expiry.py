"""Sessions and expiry over a real database: what ends when, and that reads, restores and repeats agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria import errors
from myria.builds.verify import verify
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.expiry import EXPIRY_IMPORTANCE, Lasting
from myria.notes.kinds import WARM_IMPORTANCE, importance_now, kinds_of, policies
from myria.notes.model import Changes
from myria.notes.questions import RecallQuery
from myria.notes.sessions.model import session_end
from myria.settings import Settings
from myria.settings.planner import PlannerSettings
from tests.support.counts import examples
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")
MINUTE = 60 * 10**6
DAY = 24 * 60 * MINUTE
NOW = 1_772_000_000_000_000


def may_see(who: Any) -> bool:
    return set(US) <= set(who)


class Desk:
    """Keeps, ends and recalls over one memory, at moments that a test names."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.notes = Notes(memory.log, content_characters=4_000, session_idle_s=3600)
        self.recall = memory.recall

    async def keep(self, content: str, *, at: int = NOW, session: str | None = "s1", **more: Any) -> str:
        lifetime = more.pop("lifetime", "session" if session else "permanent")
        draft = Draft(content=content, session_id=session, lifetime=lifetime, **more)
        kept = await self.notes.remember(TENANT, US, draft, contract="memento", now=at)
        return kept.note_id

    async def end(self, *, at: int, session: str = "s1", key: str = "1") -> None:
        event = session_end(session, US, timestamp=at, reason="closed", idle_s=3600, key=key, about={})
        await self.memory.log.append_events(TENANT, [event])

    async def texts(self, *, at: int, session: str | None = "s1") -> set[str]:
        query = RecallQuery(masks=Masks.containing(US), now=at, session_id=session)
        return {fragment.text for fragment in await self.recall.find(TENANT, query)}

    async def is_folded(self) -> bool:
        """Whether every projection is what the log gives."""
        return (await verify(self.memory.database, TENANT, PlannerSettings())).failed == 0


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    async with Memory(database.server_dsn, Settings()) as memory:
        yield Desk(memory)


async def test_session_notes_are_recalled_in_their_session_alone(desk: Desk) -> None:
    """A note of a session that is to last is recalled everywhere."""
    await desk.keep("The draft is in the tray")
    await desk.keep("The kiln is paid for", lifetime="permanent")
    assert await desk.texts(at=NOW + MINUTE) == {"The draft is in the tray", "The kiln is paid for"}
    assert await desk.texts(at=NOW + MINUTE, session="s2") == {"The kiln is paid for"}
    assert await desk.texts(at=NOW + MINUTE, session=None) == {"The kiln is paid for"}


async def test_a_session_is_over_when_it_is_ended(desk: Desk) -> None:
    """Its notes expire at once; those that it gets afterwards belong to a new run, and the old ones stay away."""
    await desk.keep("The draft is in the tray")
    await desk.end(at=NOW + MINUTE)
    assert await desk.texts(at=NOW + MINUTE) == set()
    await desk.keep("The draft is on the desk", at=NOW + 2 * MINUTE)
    assert await desk.texts(at=NOW + 2 * MINUTE) == {"The draft is on the desk"}
    assert await desk.is_folded()


async def test_a_session_is_over_when_it_was_idle(desk: Desk) -> None:
    """Each note of it prolongs it by an hour; what comes after an idle hour brings nothing back."""
    await desk.keep("one")
    await desk.keep("two", at=NOW + 59 * MINUTE)
    assert await desk.texts(at=NOW + 118 * MINUTE) == {"one", "two"}
    assert await desk.texts(at=NOW + 119 * MINUTE) == set()
    await desk.keep("three", at=NOW + 200 * MINUTE)
    assert await desk.texts(at=NOW + 201 * MINUTE) == {"three"}
    assert await desk.is_folded()


async def test_what_has_expired_is_absent_for_every_command(desk: Desk) -> None:
    """It can be neither amended nor forgotten; kept again it is a new note; restored it stays."""
    first = await desk.keep("The draft is in the tray")
    late = NOW + 2 * 60 * MINUTE
    with pytest.raises(errors.NoteNotFound):
        await desk.notes.amend(TENANT, first, Changes(topic="x"), may_see=may_see, contract="memento", now=late)
    with pytest.raises(errors.NoteNotFound):
        await desk.notes.forget(TENANT, first, may_see=may_see, now=late)
    await desk.notes.restore(TENANT, first, may_see=may_see, now=late)
    assert await desk.texts(at=late + DAY) == {"The draft is in the tray"}
    await desk.notes.forget(TENANT, first, may_see=may_see, now=late)
    other = await desk.keep("The kettle is on")
    again = await desk.keep("The kettle is on", at=late)
    assert again != other
    assert await desk.texts(at=late) == {"The kettle is on"}
    assert await desk.is_folded()


@given(
    kind=st.sampled_from(kinds_of("memento")),
    importance=st.floats(0, 1, width=32),
    anchor=st.booleans(),
    used=st.none() | st.integers(0, 400),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_note_expires_once_it_is_cold_and_stale(
    kind: str, importance: float, *, anchor: bool, used: int | None
) -> None:
    """Of importance from .5 on also faded; never before; never where it is permanent; and a use puts it off."""
    lasting = Lasting(
        kind=kind,
        importance=importance,
        anchor=anchor,
        created_at=NOW,
        changed_at=NOW,
        used_at=None if used is None else NOW + used * DAY,
    )
    expires_at = lasting.expires_at
    if anchor or lasting.tier(NOW) == "permanent":
        assert expires_at is None
        return
    assert expires_at is not None
    assert not lasting.has_expired(expires_at - 1)
    assert lasting.has_expired(expires_at)
    assert lasting.tier(expires_at) == "cold"
    assert lasting.is_stale(expires_at)
    idle_days = (expires_at - lasting.idle_since) / DAY
    if importance >= WARM_IMPORTANCE:
        assert importance_now(kind, importance, anchor=anchor, idle_days=idle_days) <= EXPIRY_IMPORTANCE + 1e-6
    else:
        assert round(idle_days, 6) == policies()[kind].stale_days


@pytest.mark.parametrize(
    ("kind", "importance", "days"),
    [("fact", 0.2, 60), ("procedure", 0.2, 30), ("decision", 0.45, 90), ("relation", 0.0, 60), ("error", 0.3, 60)],
)
async def test_an_unused_note_of_little_importance_expires_on_the_day_of_its_kind(
    desk: Desk, kind: str, importance: float, days: int
) -> None:
    """Every answer leaves it out from that day on, and not before; a use counts anew."""
    await desk.keep("The kiln is blue", session=None, kind=kind, importance=importance)
    assert await desk.texts(at=NOW + days * DAY - MINUTE, session=None) == {"The kiln is blue"}
    assert await desk.texts(at=NOW + days * DAY, session=None) == set()
