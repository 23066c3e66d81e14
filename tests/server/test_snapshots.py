"""The tools over a built snapshot: topics, references, publishing and rolling back, in the published shapes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import asyncpg

from myria.access import journal
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.settings import Settings
from tests.server.test_tools import fits
from tests.server.wire import Served, event, serving
from tests.support import builds
from tests.support.building import build_now
from tests.support.postgres import Database

ASKED = {"participants": ["user_42"]}
_SUBJECTS = ("garden tomatoes and beans", "the database backup", "train tickets to the coast")


def conversation(start: int = 0) -> dict[str, Any]:
    """Return a batch of events about three subjects, an hour apart."""
    events = [
        event(
            f"k{start + n}",
            text=f"message {n} about {_SUBJECTS[n // 6]}",
            timestamp=f"2026-03-{1 + start:02}T{10 + n // 6}:{n:02}:00Z",
        )
        for n in range(18)
    ]
    return {"events": events}


def nodes(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every node of a tree."""
    yield root
    for child in root.get("children", ()):
        yield from nodes(child)


async def test_a_built_memory_answers_topics(served: Served, database: Database) -> None:
    """After a build references hang below topics, everything says which snapshot it came from, and shapes hold."""
    await served.call("append_events", conversation())
    await build_now(database.builder_dsn)
    await served.call("append_event", event("fresh", text="fresh tomatoes"))
    answer = fits("query_references", await served.call("query_references", ASKED | {"query": "tomatoes"}))
    kinds = {node["kind"] for node in nodes(answer["root"])}
    assert {"root", "leaf_topic", "event_ref", "event"} <= kinds
    fresh = [node for node in nodes(answer["root"]) if node["kind"] == "event"]
    assert [node["source_event_key"] for node in fresh] == ["fresh"]

    active = fits("get_active_snapshot", await served.call("get_active_snapshot", {}))["snapshot"]
    assert active["snapshot_id"] == answer["snapshot_id"]
    topic_id = next(node["topic_id"] for node in nodes(answer["root"]) if node["kind"] == "leaf_topic")
    topic = fits("get_topic", await served.call("get_topic", ASKED | {"topic_id": topic_id}))
    assert topic["topic"]["topic_id"] == topic_id
    below = fits("query_references", await served.call("query_references", ASKED | {"root": topic_id}))
    assert {node["kind"] for node in nodes(below["root"])} <= {"root", "internal_topic", "leaf_topic", "event_ref"}
    assert (
        await served.call("get_topic", {"participants": ["stranger"], "topic_id": topic_id})
    ).code == "topic_not_found"


async def test_snapshots_are_published_and_taken_back_over_mcp(served: Served, database: Database) -> None:
    """A held snapshot is published by hand, rolled back in one step, and every answer keeps its shape."""
    await served.call("append_events", conversation())
    await build_now(database.builder_dsn)
    first = (await served.call("get_active_snapshot", {})).content["snapshot"]["snapshot_id"]
    await served.call("append_events", conversation(1))
    await build_now(database.builder_dsn, hold=True)
    status = fits("get_snapshot_status", await served.call("get_snapshot_status", {}))
    held = status["held_snapshot_id"]
    assert (status["active_snapshot_id"], status["paused"]) == (first, True)

    moved = fits("publish_snapshot", await served.call("publish_snapshot", {"snapshot_id": held, "reason": "good"}))
    assert moved == {"snapshot_id": held, "previous_snapshot_id": first}
    back = fits("rollback", await served.call("rollback", {"reason": "bad"}))
    assert back == {"snapshot_id": first, "previous_snapshot_id": held}
    assert (await served.call("publish_snapshot", {"snapshot_id": first})).is_error is False
    listed = fits("list_snapshots", await served.call("list_snapshots", {"limit": 1}))
    assert len(listed["snapshots"]) == 1
    rest = await served.call("list_snapshots", {"limit": 1, "cursor": listed["next_cursor"]})
    assert {listed["snapshots"][0]["snapshot_id"], rest.content["snapshots"][0]["snapshot_id"]} == {first, held}
    status = fits("get_snapshot_status", await served.call("get_snapshot_status", {}))
    assert status["last_build"]["status"]


async def test_a_held_snapshot_is_given_up_over_mcp(served: Served, database: Database) -> None:
    """After discard_snapshot no held snapshot waits, automatic builds go on, and it can be published no more."""
    await served.call("append_events", conversation())
    await build_now(database.builder_dsn, hold=True)
    held = (await served.call("get_snapshot_status", {})).content["held_snapshot_id"]

    gone = fits(
        "discard_snapshot", await served.call("discard_snapshot", {"snapshot_id": held, "reason": "bad labels"})
    )

    assert gone["snapshot_id"] == held
    status = fits("get_snapshot_status", await served.call("get_snapshot_status", {}))
    assert (status["held_snapshot_id"], status["paused"]) == (None, False)
    assert (await served.call("publish_snapshot", {"snapshot_id": held})).content["error"][
        "code"
    ] == "snapshot_not_held"


async def test_an_act_that_is_sent_again_is_in_the_audit_once(served: Served, database: Database) -> None:
    """Also if both calls come at once, as those of a double click do."""

    async def twice(tool: str, **arguments: str) -> dict[str, Any]:
        first, second = await asyncio.gather(served.call(tool, arguments), served.call(tool, arguments))
        assert not first.is_error
        assert not second.is_error
        content: dict[str, Any] = first.content
        return content

    async def held() -> str:
        await build_now(database.builder_dsn, hold=True)
        return str((await served.call("get_snapshot_status", {})).content["held_snapshot_id"])

    await served.call("append_events", conversation())
    await build_now(database.builder_dsn)
    first = (await served.call("get_active_snapshot", {})).content["snapshot"]["snapshot_id"]
    await served.call("append_events", conversation(1))
    await twice("publish_snapshot", snapshot_id=await held())
    await twice("rollback", to=first)
    await twice("discard_snapshot", snapshot_id=await held())
    asked = (await twice("trigger_build", idempotency_key="a"))["request_id"]
    await twice("abort_build", build_id=asked)
    async with Pool(database.operator_dsn) as pool:
        acts = [entry["action"] for entry in await journal.entries(pool, "default", 50) if entry["kind"] == "act"]
    assert sorted(acts) == ["abort_build", "discard_snapshot", "publish_snapshot", "rollback", "trigger_build"]


async def test_a_build_is_given_up_over_mcp(served: Served, database: Database) -> None:
    """After abort_build no build is queued; one that ended otherwise, and an unknown one, are refused by code."""
    await served.call("append_events", conversation())
    ended, _ = await build_now(database.builder_dsn)
    await served.call("append_events", conversation(1))
    build_id = await builds.queue(database)

    for _ in range(2):
        gone = fits("abort_build", await served.call("abort_build", {"build_id": build_id, "reason": "wrong model"}))
        assert gone == {"build_id": build_id, "status": "aborted"}
    status = fits("get_snapshot_status", await served.call("get_snapshot_status", {}))
    assert (status["queued"], status["last_build"]["status"], status["last_build"]["error"]) == (0, "aborted", None)
    asked = fits("trigger_build", await served.call("trigger_build", {}))["request_id"]
    status = fits("get_snapshot_status", await served.call("get_snapshot_status", {}))
    assert [(one["request_id"], one["waits_for"]) for one in status["waiting"]] == [(asked, "builder")]
    gone = fits("abort_build", await served.call("abort_build", {"build_id": asked}))
    assert gone["status"] == "aborted"
    assert (await served.call("get_snapshot_status", {})).content["waiting"] == []
    for name, code in ((ended, "build_ended"), ("bld_nobody", "build_not_found")):
        assert (await served.call("abort_build", {"build_id": name})).code == code


async def test_resume_builds_ends_the_pause_of_a_rollback(served: Served, database: Database) -> None:
    """After a rollback automatic builds are paused; the tool ends that, and says whether there was a pause to end."""
    for start in (0, 1):
        await served.call("append_events", conversation(start))
        await build_now(database.builder_dsn)
    await served.call("rollback", {})
    paused = (await served.call("get_snapshot_status", {})).content
    resumed = fits("resume_builds", await served.call("resume_builds", {}))
    running = (await served.call("get_snapshot_status", {})).content
    again = fits("resume_builds", await served.call("resume_builds", {}))

    assert (paused["paused"], paused["paused_reason"]) == (True, "rollback")
    assert (resumed, running["paused"], again) == ({"resumed": True}, False, {"resumed": False})


async def test_a_list_of_snapshots_is_bounded_in_bytes(database: Database) -> None:
    """However much each snapshot says, a page keeps the bound, and the pages hold every snapshot once."""
    settings = Settings.load(environ={}, overrides={"retrieval.answer_bytes": 16 * 1024})
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        for start in range(3):
            await served.call("append_events", conversation(start))
            await build_now(database.builder_dsn)
        owner = await asyncpg.connect(database.superuser_dsn)
        wordy = json.dumps([{"rule": "example", "message": "x" * 7_000}])
        await owner.execute("UPDATE myria.snapshots SET violations = $1::jsonb", wordy)
        await owner.close()
        found: list[str] = []
        cursor = None
        while cursor is not None or not found:
            page = await served.call("list_snapshots", {"limit": 200} | ({"cursor": cursor} if cursor else {}))
            assert len(json.dumps(fits("list_snapshots", page), separators=(",", ":"))) <= 16 * 1024  # as it is sent
            found += [snapshot["snapshot_id"] for snapshot in page.content["snapshots"]]
            cursor = page.content["next_cursor"]
    assert len(found) == len(set(found)) == 3


async def test_a_repetition_with_its_key_asks_for_no_other_build(served: Served) -> None:
    """trigger_build with the same idempotency_key answers the same request; without one each call is another."""
    asked = [await served.call("trigger_build", {"idempotency_key": key}) for key in ("a", "a", "b")]
    same, again, other = (answer.content["request_id"] for answer in asked)
    assert same == again != other
    plain = [(await served.call("trigger_build", {})).content["request_id"] for _ in range(2)]
    assert len({same, other, *plain}) == 4
