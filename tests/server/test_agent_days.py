"""Days on the agent's face: lines say the day where it was told, and relative days are those of `asOf`."""

from __future__ import annotations

import re

import pytest

from tests.server.test_agent import ask, keep, raw
from tests.server.wire import MODERN, Served, call, headers

TOLD = (
    ("2026-03-09T10:00:00-07:00", "Ana painted the big door green."),
    ("2026-03-10T10:00:00-07:00", "Ana painted the small door red."),
    ("2026-03-12T21:05:00-07:00", "Ana painted the fence white."),
    ("2026-03-12T22:30:00-07:00", "Ana painted the gate blue."),
)


async def _tell(served: Served) -> None:
    for moment, text in TOLD:
        event = {"timestamp": moment, "channel": "chat", "payload": {"text": text, "speaker": "Ana"}}
        event["participants"] = ["me", "agent"]
        sent = headers("append_event", version=MODERN)
        response = await served.post(call("append_event", event, version=MODERN), sent)
        assert response.status_code == 200, response.text


async def test_a_line_says_the_day_where_it_was_told(served: Served) -> None:
    """It was the next day in UTC already; of two memories of one day each says the time, others the day alone."""
    await _tell(served)
    text = (await raw(served, "recall", {"text": "What did Ana paint?"}))["content"][0]["text"]
    assert set(re.findall(r"^2026\S* (?:\S+ )?(?=Ana:)", text, re.MULTILINE)) == {
        "2026-03-09 ",
        "2026-03-10 ",
        "2026-03-12 21:05 ",
        "2026-03-12 22:30 ",
    }
    fragments = (await ask(served, "recall", text="What did Ana paint?"))["fragments"]
    assert {fragment["created_at"] for fragment in fragments} == {moment for moment, _ in TOLD}


@pytest.mark.parametrize(
    ("text", "as_of", "first"),
    [
        ("What did Ana paint yesterday?", "2026-03-10T22:00:00-07:00", "big door"),
        ("What did Ana paint today?", "2026-03-10T22:00:00-07:00", "small door"),
        ("What did Ana paint two days ago?", "2026-03-12T23:00:00-07:00", "small door"),
        ("What did Ana paint last Monday?", "2026-03-13T01:00:00-07:00", "big door"),
    ],
)
async def test_relative_days_are_those_of_as_of(served: Served, text: str, as_of: str, first: str) -> None:
    """In its own zone: late in the evening there it is the next day in UTC."""
    await _tell(served)
    fragments = (await ask(served, "recall", text=text, asOf=as_of))["fragments"]
    assert first in fragments[0]["content"]


async def test_what_is_to_come_says_from_when_on_it_holds(served: Served) -> None:
    """In the lines and in the structured content; what holds says nothing of the kind."""
    for content in ("The studio closes at six.", "From 1 June 2099 the studio closes at eight."):
        await keep(served, content, agentId="studio")
    first, second = (await ask(served, "recall", text="When does the studio close?", agentId="studio"))["fragments"]
    assert ("holds_from" in first, second["holds_from"]) == (False, "2099-06-01")
    text = (await raw(served, "recall", {"text": "When does the studio close?", "agentId": "studio"}))["content"][0]
    assert "closes at eight. (holds from 2099-06-01)" in text["text"]
