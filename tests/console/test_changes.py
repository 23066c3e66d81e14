"""Looking at snapshots, and publishing, discarding and rolling back with a look at what will change."""

from __future__ import annotations

import pytest

from myria.memory import Memory
from tests.console.conftest import Browser, text_of
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.postgres import Database


async def _two_snapshots(served: Served, database: Database) -> tuple[str, str]:
    ids = []
    for round_ in range(2):
        texts = [f"round {round_}: the kiln is at {n} degrees" for n in range(5)]
        await served.call("append_events", {"events": [event(text, text=text) for text in texts]})
        ids.append((await builds.build(database)).snapshot_id or "")
    return ids[0], ids[1]


async def test_a_rollback_shows_its_diff_before_and_its_reason_after(
    served: Served, browser: Browser, database: Database
) -> None:
    """The list leads to a page that says what will change; its form rolls back, with who and why in the history."""
    first, second = await _two_snapshots(served, database)
    listed = await browser.get("/console/changes")
    assert "Roll back to it" in text_of(listed.text)
    confirm = await browser.get("/console/changes/rollback", snapshot=first)
    assert first in confirm.text
    assert second in confirm.text
    diff = await browser.get("/console/changes/diff", **{"from": second, "to": first})
    assert "gone" in text_of(diff.text) or "changed" in text_of(diff.text)
    done = await browser.submit(confirm, "/console/changes/rollback", {"reason": "labels went wrong"})
    assert "Done: roll back" in text_of(done.text)
    assert "labels went wrong" in text_of(done.text)
    status = await served.call("get_snapshot_status", {})
    assert status.content["active_snapshot_id"] == first


async def test_a_form_needs_its_token(served: Served, browser: Browser, database: Database) -> None:
    """Without the token of this session's page, or from another origin, nothing is done."""
    first, second = await _two_snapshots(served, database)
    page = await browser.get("/console/changes/rollback", snapshot=first)
    token = page.text.partition('name="form_token" value="')[2].partition('"')[0]
    origin = str(browser.client.base_url).rstrip("/")
    for fields, sent in (
        ({"snapshot": first}, {"origin": origin}),
        ({"snapshot": first, "form_token": token[:-1] + ("1" if token[-1] == "0" else "0")}, {"origin": origin}),
        ({"snapshot": first, "form_token": token}, {"origin": "https://evil.example"}),
        ({"snapshot": first, "form_token": token}, {}),
        ({"snapshot": first, "form_token": token}, {"origin": origin, "sec-fetch-site": "same-site"}),
    ):
        refused = await browser.client.post("/console/changes/rollback", data=fields, headers=sent)
        assert refused.status_code == 403
    status = await served.call("get_snapshot_status", {})
    assert status.content["active_snapshot_id"] == second


async def test_no_act_chooses_a_snapshot_by_itself(served: Served, browser: Browser, database: Database) -> None:
    """A page that lost the snapshot it was about asks for one, and rolls nothing back."""
    _, second = await _two_snapshots(served, database)
    page = await browser.get("/console/changes/rollback")
    assert "Choose a snapshot" in text_of(page.text)
    assert (await served.call("get_snapshot_status", {})).content["active_snapshot_id"] == second


async def test_nothing_changes_by_opening_a_page(served: Served, browser: Browser, database: Database) -> None:
    """Every act has a page that only asks."""
    _, second = await _two_snapshots(served, database)
    for act in ("build", "publish", "discard", "rollback", "resume"):
        assert (await browser.get(f"/console/changes/{act}", snapshot=second)).status_code == 200
    status = await served.call("get_snapshot_status", {})
    assert status.content["active_snapshot_id"] == second


@pytest.mark.parametrize("names", [("1", "999"), ("snap_nobody", "active")])
async def test_a_diff_of_nothing_says_so(
    served: Served, browser: Browser, database: Database, names: tuple[str, str]
) -> None:
    """A snapshot that is not kept is named."""
    await _two_snapshots(served, database)
    page = await browser.get("/console/changes/diff", **{"from": names[0], "to": names[1]})
    assert page.status_code == 404
    assert "snapshot_not_found" in text_of(page.text)


async def test_a_form_acts_once_however_often_it_is_sent(
    served: Served, browser: Browser, database: Database, memory: Memory
) -> None:
    """A rollback that is sent again says that it is done; once the snapshot has moved on, it is refused."""
    first, second = await _two_snapshots(served, database)
    old = await browser.get("/console/changes/rollback", snapshot=first)
    for _ in range(3):
        assert "Done: roll back" in text_of((await browser.submit(old, "/console/changes/rollback")).text)
    back = await browser.get("/console/changes/rollback", snapshot=second)
    await browser.submit(back, "/console/changes/rollback")
    refused = await browser.submit(old, "/console/changes/rollback")
    assert refused.status_code == 409
    assert "form_outdated" in text_of(refused.text)
    assert (await served.call("get_snapshot_status", {})).content["active_snapshot_id"] == second
    moves = await memory.registry.moves("default")
    assert [move["kind"] for move in moves] == ["rollback", "rollback", "publish", "publish"]


async def test_an_old_form_does_not_resume_a_later_pause(served: Served, browser: Browser, database: Database) -> None:
    """Builds that were paused again since a form was made stay paused."""
    first, second = await _two_snapshots(served, database)
    await served.call("rollback", {"to": first})
    old = await browser.get("/console/changes/resume")
    for _ in range(2):
        assert "Done: resume" in text_of((await browser.submit(old, "/console/changes/resume")).text)
    await served.call("rollback", {"to": second})
    assert (await browser.submit(old, "/console/changes/resume")).status_code == 409
    assert (await served.call("get_snapshot_status", {})).content["paused"]


async def test_a_build_form_asks_for_one_build(served: Served, browser: Browser, memory: Memory) -> None:
    """The same form twice is one request; another form is another."""
    form = await browser.get("/console/changes/build")
    for _ in range(3):
        assert "Done: build now" in text_of((await browser.submit(form, "/console/changes/build")).text)
    assert (await memory.registry.status("default"))["queued"] == 1
    await browser.submit(await browser.get("/console/changes/build"), "/console/changes/build")
    assert (await memory.registry.status("default"))["queued"] == 2
