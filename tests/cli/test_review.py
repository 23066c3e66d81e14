"""`myria review`: what waits, and a decision about it, on the command line."""

from __future__ import annotations

import asyncio

from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.settings import ReviewSettings, Settings
from tests.cli.conftest import Call
from tests.support.postgres import Database


async def _hold(database: Database, *contents: str) -> list[str]:
    """Keep decisions that wait for a review; return their ids."""
    async with Memory(database.server_dsn, Settings(review=ReviewSettings(kinds=("decision",)))) as memory:
        return [
            (
                await memory.notes.remember(
                    "default", ("fern",), Draft(content=content, kind="decision"), contract="memento", speaker="fern"
                )
            ).note_id
            for content in contents
        ]


def test_held_notes_are_listed_and_decided(myria: Call, database: Database) -> None:
    """Approved, refused and taken back, each with who and why in list and journal; exit 1 where one was not decided."""
    assert "no note is held" in myria("review", "list").err
    first, second = asyncio.run(_hold(database, "We sell the kiln", "We buy a kiln"))
    listed = myria("review", "list")
    assert "We sell the kiln" in listed.out
    assert "review.kinds=decision" in listed.out
    assert myria("review", "approve", first, "--reason", "agreed").status == 0
    assert myria("review", "refuse", first, second).status == 1
    (decided, *_) = myria("review", "list", "--state", "approved", "--json").json["under_review"]
    assert (decided["note_id"], decided["reason"]) == (first, "agreed")
    assert decided["decided_by"].startswith("cli:")
    answer = myria("review", "undo", first, second, "--json")
    assert [note["state"] for note in answer.json["decided"]] == ["held", "held"]
    assert len(myria("review", "list", "--participant", "fern", "--json").json["under_review"]) == 2
    entries = myria("audit", "--access", "--json").json["access"]
    told = [(entry["action"], entry["target"], entry["outcome"], entry["details"]["decision"]) for entry in entries]
    assert set(told) == {
        ("decide_notes", first, "ok", "approve"),
        ("decide_notes", first, "note_decided", "refuse"),
        ("decide_notes", second, "ok", "refuse"),
        ("decide_notes", first, "ok", "hold"),
        ("decide_notes", second, "ok", "hold"),
    }
