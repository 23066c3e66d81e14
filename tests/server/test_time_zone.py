"""Days in the zone of the setting service.time_zone, where a request or an event says none."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from myria.errors import ConfigurationError
from myria.log.fields import parse_timestamp
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.settings import ServiceSettings, Settings
from tests.server.test_agent import ask, keep, raw
from tests.server.wire import MODERN, Served, call, headers

ZONE = "Pacific/Kiritimati"
"""Fourteen hours east of UTC: for most of the day its date is another one."""


@pytest.fixture
def settings() -> Settings:
    """Days are those of Kiritimati."""
    return Settings(service=ServiceSettings(time_zone=ZONE))


async def test_a_note_is_of_the_day_in_that_zone(served: Served, memory: Memory) -> None:
    """In recall, in its structured content and in what a session begins with; who gives an offset keeps it."""
    await keep(served, "The kiln of the north shed is hot.")
    day = datetime.now(ZoneInfo(ZONE)).date().isoformat()
    text = (await raw(served, "recall", {"text": "Which kiln is hot?"}))["content"][0]["text"]
    assert f"\n{day}: The kiln" in text
    [fragment] = (await ask(served, "recall", text="Which kiln is hot?"))["fragments"]
    assert fragment["created_at"].startswith(day)
    assert fragment["created_at"].endswith("+14:00")
    assert f"- {day} The kiln of the north shed" in (await raw(served, "context", {}))["content"][0]["text"]
    event = {"timestamp": "2026-03-09T23:00:00-07:00", "channel": "chat", "payload": {"text": "The glaze is blue"}}
    sent = call("append_event", event | {"participants": ["me", "agent"]}, version=MODERN)
    assert (await served.post(sent, headers("append_event", version=MODERN))).status_code == 200
    [told] = (await ask(served, "recall", text="What colour is the glaze?"))["fragments"]
    assert told["created_at"] == "2026-03-09T23:00:00-07:00"


async def test_relative_days_and_days_alone_are_of_that_zone(served: Served, memory: Memory) -> None:
    """A day begins there fourteen hours before it does in UTC."""
    notes = Notes(memory.log, content_characters=999)
    for moment, text in (
        ("2026-03-09T09:00:00Z", "Ana fired the bowls."),
        ("2026-03-09T11:00:00Z", "With Ben, cups were glazed by Ana."),
    ):
        now = parse_timestamp(moment)
        await notes.remember("default", ("agent", "me"), Draft(content=text), contract="memento", now=now)
    of_day = await ask(served, "recall", text="What did Ana do?", timeRange={"from": "2026-03-10", "to": "2026-03-10"})
    assert [fragment["content"] for fragment in of_day["fragments"]] == ["With Ben, cups were glazed by Ana."]
    yesterday = await ask(served, "recall", text="What did Ana do yesterday?", asOf="2026-03-10")
    assert yesterday["fragments"][0]["content"] == "Ana fired the bowls."
    masks = Masks.containing(("agent", "me"))
    opening = await memory.openings.gather("default", masks, now=parse_timestamp("2026-03-09T12:00:00Z"), budget=2_000)
    assert "- 2026-03-09 Ana fired the bowls." in opening.text
    assert "- 2026-03-10 With Ben, cups were glazed by Ana." in opening.text


def test_a_zone_that_nobody_knows_is_refused() -> None:
    """When settings are read, by the name of the setting."""
    with pytest.raises(ConfigurationError, match="Europe/Lisbon") as refused:
        Settings(service=ServiceSettings(time_zone="Europe/Lisbonne"))
    assert refused.value.details["field"] == "service.time_zone"
