"""The page of a build says what it did, what failed, what models cost, and what to do next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from myria.settings import ConsoleSettings, Settings
from tests.console.conftest import LOCAL, Browser, elements, text_of
from tests.llm.conftest import Configuring, Starting, configured, provide
from tests.llm.oracle import Oracle
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.events import append, conversation
from tests.support.postgres import Database

__all__ = ["configured", "provide"]


async def _open(browser: Browser, build_id: str) -> str:
    page = await browser.get(f"/console/changes/builds/{build_id}")
    assert page.status_code == 200, page.text
    return page.text


async def test_a_build_says_what_it_did(served: Served, browser: Browser, database: Database) -> None:
    """From Changes a build is one click away; its page has cause, times, counts, and leads to what it changed."""
    await served.call("append_event", event("a"))
    await builds.build(database)
    await served.call("append_event", event("b", text="The kiln opens on Friday"))
    built = await builds.build(database)
    changes = await browser.get("/console/changes")
    link = next(a["href"] for tag, a in elements(changes.text) if built.build_id in (a.get("href") or ""))
    text = text_of(page := (await browser.get(link or "")).text)
    assert "Build succeeded" in text
    assert "1 of 1 groups built" in text
    assert "events new 1" in text
    assert "No call to a model is on record" in text
    diff = next(a["href"] for tag, a in elements(page) if "/changes/diff" in (a.get("href") or ""))
    assert (await browser.get(diff or "")).status_code == 200


async def test_a_failed_build_says_which_group_failed_and_what_to_do(
    served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group that could not be compiled has its error; the page leads to the runbook and to a new build."""

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the <b>kiln</b> is cold")

    await served.call("append_event", event("a"))
    monkeypatch.setattr("myria.builds.run.compile_scope", broken)
    page = await _open(browser, (await builds.build(database)).build_id)
    text = text_of(page)
    assert "Build failed" in text
    assert "agent_1 , user_42 3 times" in text
    assert "the &lt;b&gt;kiln&lt;/b&gt; is cold" in page
    assert "docs/runbooks/MyriaBuildValidationFailing.md" in text
    assert "/console/changes/build?" in page or '/console/changes/build"' in page


async def test_calls_to_models_are_summed(
    served: Served, browser: Browser, database: Database, provide: Starting, configured: Configuring
) -> None:
    """A build's page shows how often models were asked, the tokens, and what they cost; Operations sums up the day."""
    await append(database.server_dsn, conversation(60))
    provider = provide(Oracle())
    built = await builds.build(database, configured=replace(builds.DEFAULTS, llm=configured(provider)))
    text = text_of(await _open(browser, built.build_id))
    sums = "count(*) AS calls, sum(input_tokens) AS tokens, sum(cost_microusd) AS cost"
    (row,) = await builds.rows(database, f"SELECT {sums} FROM myria.llm_calls")
    assert row["calls"] == len(provider.asked) > 0
    assert f"planning topics scripted/model {row['calls']} 0 {row['tokens']:,}".replace(",", "\u202f") in text
    operations = text_of((await browser.get("/console/operations")).text)
    assert f"Calls to models today (UTC) {row['calls']}, which cost {row['cost'] / 1_000_000:.4f} $" in operations


async def test_all_builds_are_paged(
    served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every build is on one page of the history, and each page has a bound."""
    monkeypatch.setattr("myria_server.console.changes._PAGE", 2)
    await served.call("append_event", event("a"))
    made = [(await builds.build(database, force=True)).build_id for _ in range(5)]
    listed: list[str] = []
    address: str | None = "/console/changes"
    while address is not None:
        links = [a.get("href") or "" for tag, a in elements((await browser.get(address)).text) if tag == "a"]
        shown = [link.rpartition("/")[2] for link in links if "/changes/builds/bld_" in link]
        assert len(shown) <= 2
        listed += shown
        address = next((link for link in links if "before=" in link), None)
    assert listed == made[::-1]


@pytest.mark.parametrize("build_id", ["bld_nobody", "%00", "a" * 5000, "<b>", "%ED%A0%80", "\u202e"])
async def test_an_unknown_build_says_so(browser: Browser, build_id: str) -> None:
    """Whatever stands for a build that there is not gets a coded page."""
    for address in (f"/console/changes/builds/{build_id}", f"/console/changes?before={build_id}"):
        page = await browser.get(address)
        assert page.status_code in (400, 404)
        assert "build_not_found" in text_of(page.text) or "invalid_argument" in text_of(page.text)


async def test_without_a_build_the_list_says_what_to_do(browser: Browser) -> None:
    """An empty list leads to the first build."""
    assert "No build was made yet" in text_of((await browser.get("/console/changes")).text)


class TestWithRunbooks:
    """Where the runbooks are served."""

    @pytest.fixture
    def settings(self) -> Settings:
        """The address of the runbooks is set."""
        console = ConsoleSettings(enabled=True, runbooks_url="https://docs.example.com/runbooks/")
        return replace(LOCAL, console=console)

    async def test_advice_links_to_its_runbook(self, served: Served, browser: Browser, database: Database) -> None:
        """The link goes to the address that the settings name, and tells it nothing of this one."""
        await served.call("append_event", event("a"))
        page = await _open(browser, await builds.queue(database))
        (link,) = (a for tag, a in elements(page) if "docs.example.com" in (a.get("href") or ""))
        assert link["href"] == "https://docs.example.com/runbooks/MyriaBuildsStuck.md"
        assert link["rel"] == "noreferrer"
