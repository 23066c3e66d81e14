"""Looking at snapshots, and publishing, discarding and rolling back with a look at what will change."""

from __future__ import annotations

import re

import pytest

from myria.access.journal import entries
from myria.builds.queue import take_up
from myria.builds.run import run_build
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.settings import Settings
from myria_server.console.changes import ACTS
from tests.console.conftest import WITH_KEYS, Browser, elements, text_of
from tests.console.things import a_browser
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.events import append, conversation
from tests.support.keys import access_store, make_key
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
    assert "Roll back to this" in text_of(listed.text)
    confirm = await browser.get("/console/changes/rollback", snapshot=first)
    assert first in confirm.text
    assert second in confirm.text
    said = text_of(confirm.text)
    assert "What will change For 1 group of people:" in said
    assert "5 events no longer in a topic" in said
    diff = await browser.get("/console/changes/diff", **{"from": second, "to": first})
    assert "gone" in text_of(diff.text) or "changed" in text_of(diff.text)
    done = await browser.submit(confirm, "/console/changes/rollback", {"reason": "labels went wrong"})
    assert "Rolled back" in text_of(done.text)
    assert "labels went wrong" in text_of(done.text)
    status = await served.call("get_snapshot_status", {})
    assert status.content["active_snapshot_id"] == first


async def test_a_page_that_asks_waits_for_its_counts_no_longer_than_it_may(
    served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too much differs to be counted in time, it says so, and leads to all that differs."""
    first, _ = await _two_snapshots(served, database)
    monkeypatch.setattr("myria_server.console.differences.COUNTED_S", 0.0)
    page = await browser.get("/console/changes/rollback", snapshot=first)
    assert "could not be counted in time" in text_of(page.text)
    link = next(a["href"] for tag, a in elements(page.text) if tag == "a" and "/changes/diff" in (a["href"] or ""))
    assert (await browser.get(link or "")).status_code == 200
    monkeypatch.undo()
    monkeypatch.setattr("myria_server.console.differences._MOST_NODES", 1)
    page = await browser.get("/console/changes/rollback", snapshot=first)
    assert "At least, for 1 group" in text_of(page.text)


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
    """A page that lost the snapshot or the build it was about asks for one, and does nothing."""
    _, second = await _two_snapshots(served, database)
    await builds.queue(database)
    page = await browser.get("/console/changes/rollback")
    assert "Choose a snapshot" in text_of(page.text)
    page = await browser.get("/console/changes/abort")
    assert "Choose a build" in text_of(page.text)
    assert (await served.call("get_snapshot_status", {})).content["queued"] == 1
    assert (await served.call("get_snapshot_status", {})).content["active_snapshot_id"] == second


async def test_a_build_is_given_up_after_a_look_at_it(
    served: Served, browser: Browser, database: Database, memory: Memory
) -> None:
    """Before, the page says who asked, what was done and paid, and what comes after; after it, who and why stand in the
    history, on the page of the build and in the audit. Sent again, the form changes nothing."""
    _, second = await _two_snapshots(served, database)
    await served.call("append_event", event("new"))
    await served.call("trigger_build", {"reason": "to try a model"})
    async with Pool(database.operator_dsn) as control:
        build = await take_up(control, "default")
    assert build is not None
    await served.call("trigger_build", {})
    changes = await browser.get("/console/changes")
    links = [a.get("href") or "" for tag, a in elements(changes.text) if "build=bld_" in (a.get("href") or "")]
    assert links == [f"/console/changes/abort?build={build['build_id']}"] * 2
    form = await browser.get(links[0])
    said = text_of(form.text)
    for part in (
        "asked for by mcp : to try a model",
        "0 of 0 groups of people",
        "nothing: no model was asked",
        second,
        "1 event waits for a build",
        "1 more was asked for; the next one begins at once",
    ):
        assert part in said
    for _ in range(2):
        done = await browser.submit(form, "/console/changes/abort", {"reason": "too slow"})
        assert "The build was given up" in text_of(done.text)
        assert "Build given up" in text_of(done.text)
        assert "given up by mcp : too slow" in text_of(done.text)
    page = await browser.get(f"/console/changes/builds/{build['build_id']}")
    assert "given up by mcp : too slow" in text_of(page.text)
    status = (await served.call("get_snapshot_status", {})).content
    assert (status["active_snapshot_id"], status["queued"]) == (second, 1)
    async with Pool(database.operator_dsn) as control:
        written = [entry for entry in await entries(control, "default", 10) if entry["action"] == "abort_build"]
    assert [(act["target"], act["details"]["reason"]) for act in written] == [(build["build_id"], "too slow")]


async def test_a_build_that_nobody_takes_up_is_given_up(
    served: Served, browser: Browser, database: Database, memory: Memory
) -> None:
    """The page says what it waits for, and its end, by whom and why, stands in the history like that of any build."""
    await served.call("append_event", event("new"))
    await served.call("trigger_build", {"reason": "to try a model"})
    changes = await browser.get("/console/changes")
    said = text_of(changes.text)
    assert "A build waits for a builder" in said
    assert "asked for by mcp : to try a model" in said
    links = {a.get("href") or "" for tag, a in elements(changes.text) if "/changes/abort" in (a.get("href") or "")}
    (link,) = links
    form = await browser.get(link)
    assert "no build has taken it up yet" in text_of(form.text)
    for _ in range(2):
        done = text_of((await browser.submit(form, "/console/changes/abort", {"reason": "no builder comes"})).text)
        assert "The build was given up" in done
        assert "given up by mcp : no builder comes" in done
        assert "none was asked for" in done
    (build,) = await memory.registry.builds("default")
    page = text_of((await browser.get(f"/console/changes/builds/{build['build_id']}")).text)
    assert "Begun never" in page
    assert "This one is given up" in text_of((await browser.get(link)).text)


async def test_a_build_that_ended_meanwhile_is_not_given_up(
    served: Served, browser: Browser, database: Database, memory: Memory
) -> None:
    """A form that comes too late is refused with how the build ended; the page then has no form any more."""
    await served.call("append_event", event("new"))
    build_id = await builds.queue(database)
    late = await browser.get("/console/changes/abort", build=build_id)
    await run_build(builds.DEFAULTS, database.builder_dsn, "default", build_id)
    refused = await browser.submit(late, "/console/changes/abort")
    assert "build_ended" in text_of(refused.text)
    assert "ended as succeeded" in text_of(refused.text)
    page = await browser.get("/console/changes/abort", build=build_id)
    assert "This one is succeeded" in text_of(page.text)
    assert 'action="/console/changes/abort' not in page.text
    assert (await memory.registry.build("default", build_id))["status"] == "succeeded"


async def test_an_act_that_is_not_possible_has_no_form(served: Served, browser: Browser, database: Database) -> None:
    """Its page says what it is for, and leads back."""
    _, second = await _two_snapshots(served, database)
    for act in ("publish", "discard", "rollback"):
        page = await browser.get(f"/console/changes/{act}", snapshot=second)
        assert "This one is active" in text_of(page.text)
        assert f'action="/console/changes/{act}' not in page.text
        assert (await browser.get(f"/console/changes/{act}", snapshot="snap_nobody")).status_code == 404
    assert "No rollback pauses" in text_of((await browser.get("/console/changes/resume")).text)


async def test_resuming_says_what_paused_builds(served: Served, browser: Browser, database: Database) -> None:
    """Who rolled back and why; the reason to resume is kept in the audit."""
    first, _ = await _two_snapshots(served, database)
    await served.call("rollback", {"to": first, "reason": "labels went wrong"})
    form = await browser.get("/console/changes/resume")
    assert "Rolled back by mcp" in text_of(form.text)
    assert "labels went wrong" in text_of(form.text)
    assert "5 events wait for a build" in text_of(form.text)
    await browser.submit(form, "/console/changes/resume", {"reason": "mended"})
    async with Pool(database.operator_dsn) as control:
        newest = (await entries(control, "default", 1))[0]
    assert (newest["action"], newest["details"]) == ("resume_builds", {"reason": "mended"})


async def test_the_history_says_what_became_of_every_build(
    served: Served, browser: Browser, database: Database, memory: Memory
) -> None:
    """One row for each, newest first: its state, cause and events, who published it, and why; and for each rollback."""
    first, second = await _two_snapshots(served, database)
    await builds.build(database)
    await served.call("append_event", event("new"))
    held = (await builds.build(database, hold=True)).snapshot_id
    await served.call("discard_snapshot", {"snapshot_id": held, "reason": "no better"})
    await served.call("rollback", {"to": first, "reason": "labels went wrong"})
    rows = (await browser.get("/console/changes")).text.partition('<ol class="history">')[2].split("<li")[1:]
    said = [text_of("<body>" + "<li" + row) for row in rows]
    assert said[0].startswith("Rollback ")
    assert "To snapshot 1 by mcp : labels went wrong" in said[0]
    rows, said = rows[1:], said[1:]
    assert [" ".join(row.split()[:3]) for row in said] == [
        "Build given up",
        "Build nothing to",
        "Snapshot 2 previous",
        "Snapshot 1 active",
    ]
    assert "given up by mcp : no better" in said[0]
    assert "5 events added to topics" in said[2]
    assert "published by itself" in said[2]
    assert f"/console/changes/diff?from={first}&amp;to={second}" in rows[2]
    assert f"/console/changes/rollback?snapshot={second}" in rows[2]
    assert "rollback" not in rows[3]


async def test_builds_that_had_nothing_to_do_are_one_row(served: Served, browser: Browser, database: Database) -> None:
    """They are folded up to a build that did something; before the next one its page says that nothing waits."""
    await served.call("append_event", event("new"))
    await builds.build(database)
    idle = [(await builds.build(database)).build_id for _ in range(3)]
    page = (await browser.get("/console/changes")).text
    assert page.count("<h3>") == 2
    assert "2 builds before it had nothing to do either" in text_of(page)
    assert all(build_id in page for build_id in idle)
    assert "Nothing to do No event waits." in text_of((await browser.get("/console/changes/build")).text)
    await served.call("append_event", event("newer"))
    assert "Nothing to do" not in text_of((await browser.get("/console/changes/build")).text)


async def test_two_chosen_snapshots_are_compared(served: Served, browser: Browser, database: Database) -> None:
    """A form of the history names all that are kept; the page of a previous one's build leads to a rollback."""
    first, second = await _two_snapshots(served, database)
    page = (await browser.get("/console/changes")).text
    form = page[page.index('action="/console/changes/diff"') :]
    options = [(a["value"], "selected" in a) for tag, a in elements(form) if tag == "option"]
    assert options == [(second, False), (first, True), (second, True), (first, False)]
    compared = await browser.get("/console/changes/diff", **{"from": second, "to": second})
    assert "Nothing differs" in text_of(compared.text)
    builds_made = [a["href"] or "" for tag, a in elements(page) if "/changes/builds/" in (a.get("href") or "")]
    assert f"/console/changes/rollback?snapshot={first}" in (await browser.get(builds_made[1])).text
    assert "/changes/rollback" not in (await browser.get(builds_made[0])).text


async def test_nothing_changes_by_opening_a_page(served: Served, browser: Browser, database: Database) -> None:
    """Every act has a page that only asks."""
    _, second = await _two_snapshots(served, database)
    for act in ("build", "publish", "discard", "rollback", "resume"):
        assert (await browser.get(f"/console/changes/{act}", snapshot=second)).status_code == 200
    build_id = await builds.queue(database)
    assert (await browser.get("/console/changes/abort", build=build_id)).status_code == 200
    assert (await served.call("get_snapshot_status", {})).content["queued"] == 1
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
        assert "Rolled back" in text_of((await browser.submit(old, "/console/changes/rollback")).text)
    await browser.submit(await browser.get("/console/changes/resume"), "/console/changes/resume")
    assert (await browser.submit(old, "/console/changes/rollback")).status_code == 409  # builds are paused no more
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
        assert "Automatic builds are on again" in text_of((await browser.submit(old, "/console/changes/resume")).text)
    await served.call("rollback", {"to": second})
    assert (await browser.submit(old, "/console/changes/resume")).status_code == 409
    assert (await served.call("get_snapshot_status", {})).content["paused"]


async def test_a_build_form_asks_for_one_build(served: Served, browser: Browser, memory: Memory) -> None:
    """The same form twice is one request; another form is another."""
    form = await browser.get("/console/changes/build")
    for _ in range(3):
        assert "A build was requested" in text_of((await browser.submit(form, "/console/changes/build")).text)
    assert (await memory.registry.status("default"))["queued"] == 1
    await browser.submit(await browser.get("/console/changes/build"), "/console/changes/build")
    assert (await memory.registry.status("default"))["queued"] == 2


class TestWithKeys:
    """Where callers need a key."""

    @pytest.fixture
    def settings(self) -> Settings:
        """The console asks for a key."""
        return WITH_KEYS

    async def test_of_two_who_send_the_same_form_the_second_is_told_who_was_first(
        self, served: Served, browser: Browser, database: Database
    ) -> None:
        """And when, and why; their own reason is kept nowhere, and nothing says that they did it. Sent twice by one, a
        form says that it was done."""
        first, held, other = "", "", a_browser(served)
        for number in range(3):
            await append(database.server_dsn, conversation(5, seed=number, start=number * 1_000))
            built = await builds.build(database, hold=number == 2)
            first, held = first or built.snapshot_id or "", built.snapshot_id or ""
        async with access_store(database) as store:
            for one, name in ((browser, "ada"), (other, "ben")):
                await one.sign_in(
                    await make_key(store, name, name=name, roles=("read", "admin"), faces=("core", "admin"))
                )
        for act, about in (("discard", {"snapshot": held}), ("rollback", {"snapshot": first}), ("resume", {})):
            forms = [await one.get(f"/console/changes/{act}", **about) for one in (browser, other)]
            for _ in range(2):
                done = await browser.submit(forms[0], f"/console/changes/{act}", {"reason": "labels went wrong"})
                assert ACTS[act].done in text_of(done.text), act
            late = await other.submit(forms[1], f"/console/changes/{act}", {"reason": "me too"})
            said = text_of(late.text)
            assert late.status_code == 409, act
            assert re.search(r"done already by ada \(key:\w+\), on \d+ \w+ \d+, .* UTC: labels went wrong", said), act
            assert "me too" not in text_of((await other.get("/console/changes")).text)

    async def test_what_was_done_is_said_once_and_by_no_address(
        self, served: Served, browser: Browser, database: Database
    ) -> None:
        """The page to which a form leads says it; opened again, kept or sent to somebody, its address says nothing."""
        async with access_store(database) as store:
            await browser.sign_in(await make_key(store, "ada", roles=("read", "admin"), faces=("core", "admin")))
        form = await browser.get("/console/changes/build")
        done = await browser.submit(form, "/console/changes/build")
        assert "A build was requested." in text_of(done.text)
        assert done.url.params["done"] == "build"
        for address in (str(done.url), "/console/changes?done=rollback", "/console/keys?done=revoked"):
            assert 'class="card notice" role="status"' not in (await browser.get(address)).text, address
        assert "approved" not in text_of((await browser.get("/console/review?done=approve&notes=note_1")).text)

    async def test_a_reader_sees_states_but_no_names_and_no_reasons(
        self, served: Served, browser: Browser, database: Database, memory: Memory
    ) -> None:
        """What administrators write may name anybody; whoever only reads sees what is served, and since when."""
        for number in range(2):
            await append(database.server_dsn, conversation(5, seed=number, start=number * 1_000))
            await builds.build(database)
        await memory.registry.rollback("default", actor="key:zzz", reason="labels went wrong")
        await memory.registry.abort("default", await builds.queue(database), actor="key:zzz", reason="wrong model")
        async with access_store(database) as store:
            await browser.sign_in(await make_key(store, "ada", roles=("read",), faces=("core",)))
        page = await browser.get("/console/changes")
        said = text_of(page.text)
        for part in (
            "Build given up",
            "who and why is for administrators",
            "Snapshot 2 previous",
            "Snapshot 1 active",
            "5 events added to topics",
        ):
            assert part in said
        assert "Rollback " in said
        for part in ("zzz", "labels", "wrong model"):
            assert part not in said
        links = [a.get("href") or "" for tag, a in elements(page.text) if "/console/changes/" in (a.get("href") or "")]
        assert links == []
        build_id = (await memory.registry.builds("default", limit=1))[0]["build_id"]
        assert (await browser.get("/console/changes/abort", build=build_id)).status_code == 403

    async def test_an_administrator_reads_the_name_of_the_key_that_gave_a_build_up(
        self, served: Served, browser: Browser, database: Database, memory: Memory
    ) -> None:
        """In the history and on the page of the build, as for every other act."""
        async with access_store(database) as store:
            key = await make_key(store, "ada", roles=("read", "admin"), faces=("core", "admin"))
        key_id = key.split("_")[1]
        build_id = await builds.queue(database)
        await memory.registry.abort("default", build_id, actor=f"key:{key_id}", reason="wrong model")
        await browser.sign_in(key)
        for page in ("/console/changes", f"/console/changes/builds/{build_id}"):
            assert f"given up by k {key_id} : wrong model" in text_of((await browser.get(page)).text)

    async def test_no_page_offers_a_form_that_its_visitor_may_not_send(
        self, served: Served, browser: Browser, database: Database
    ) -> None:
        """Each page that asks once is refused already where its form would be: it says which role is missing."""
        stored = await append(database.server_dsn, conversation(5))
        first = (await builds.build(database)).snapshot_id
        await append(database.server_dsn, conversation(5, seed=1, start=1_000))
        await builds.build(database)
        async with access_store(database) as store:
            key = await make_key(store, "ana", roles=("read",), faces=("core", "agent", "admin"))
        await browser.sign_in(key)
        asked_of = {"snapshot": first, "build": await builds.queue(database)}
        for path in (*(f"changes/{act}" for act in ACTS), f"events/{stored[0].event_id}/forget"):
            page = await browser.get(f"/console/{path}", **asked_of)
            assert page.status_code == 403, path
            assert "role_required" in text_of(page.text)
            assert '<button class="main">' not in page.text

    async def test_the_history_says_when_builds_were_resumed(
        self, served: Served, browser: Browser, database: Database
    ) -> None:
        """To an administrator with a key, with who and why, as the audit has it."""
        for number in range(2):
            await append(database.server_dsn, conversation(5, seed=number, start=number * 1_000))
            await builds.build(database)
        async with access_store(database) as store:
            await browser.sign_in(await make_key(store, "ana", roles=("admin",), faces=("admin",), name="operator"))
        page = (await browser.get("/console/changes")).text
        link = next(a["href"] or "" for tag, a in elements(page) if "/changes/rollback" in (a.get("href") or ""))
        await browser.submit(await browser.get(link), "/console/changes/rollback", {"reason": "labels went wrong"})
        form = await browser.get("/console/changes/resume")
        said = text_of((await browser.submit(form, "/console/changes/resume", {"reason": "mended"})).text)
        history = said.partition("History")[2]
        assert history.index("Resumed") < history.index("Rollback") < history.index("Snapshot 2")
        assert "Automatic builds by operator" in history
        assert ": mended" in history
