"""Operations tells how a memory does and what to do; settings and the journal are found by what is sought."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from myria.access.store import AccessStore
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError
from myria.llm.failures import Kind, failed
from myria.llm.waits import Work, note_outcome
from myria.settings import AuthSettings, ConsoleSettings, EmbeddingsSettings, Settings
from tests.console.conftest import LOCAL, WITH_KEYS, Browser, elements, text_of
from tests.console.things import a_browser
from tests.server.wire import Served, call, event, headers
from tests.support import builds
from tests.support.events import TENANT
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

FACES = ("core", "agent", "admin")


async def _page(browser: Browser, path: str, **parameters: str) -> str:
    page = await browser.get(f"/console/{path}", **parameters)
    assert page.status_code == 200, page.text
    return page.text


class TestOperations:
    """The page Operations."""

    @pytest.fixture
    def settings(self, request: pytest.FixtureRequest) -> Settings:
        """The console is on; a test may say what makes vectors."""
        callspec = getattr(request.node, "callspec", None)
        is_off = callspec is not None and callspec.params["model"] == "off"
        made = EmbeddingsSettings(model="off" if is_off else "auto")
        return replace(LOCAL, embeddings=made)

    async def test_a_memory_that_is_well_says_so(self, browser: Browser) -> None:
        """Each part has its state, and versions stand below."""
        text = text_of(await _page(browser, "operations"))
        assert "Database answers" in text
        assert "Builds idle" in text
        assert "Schema 0001_baseline" in text
        assert "Agents say whether an answer helped" in text
        assert "What went wrong last" not in text

    @pytest.mark.parametrize("model", ["auto", "off"])
    async def test_what_waits_for_a_model_says_so_while_it_is_used(
        self, served: Served, browser: Browser, database: Database, model: str
    ) -> None:
        """Vectors wait since a moment where a model makes them; once it is switched off nothing says that they do."""
        await served.call("append_event", event("a"))
        async with Pool(database.operator_dsn) as control:
            for work in (Work.VECTORS, Work.RATINGS):
                await note_outcome(control, TENANT, work, failed(Kind.TIMEOUT, "the endpoint is cold"))
        page = text_of(await _page(browser, "operations"))
        assert "ratings of notes wait since" in page
        assert ("vectors of new events wait since" in page) == (model != "off")

    async def test_failed_builds_lead_to_their_reasons(
        self, served: Served, browser: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The part Builds says what to do; the newest failure is one click away."""

        async def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("the kiln is cold")

        await served.call("append_event", event("a"))
        monkeypatch.setattr("myria.builds.run.compile_scope", broken)
        built = await builds.build(database)
        page = await _page(browser, "operations")
        assert "1 failed in a row" in text_of(page)
        assert "docs/runbooks/MyriaBuildsFailing.md" in text_of(page)
        assert "the kiln is cold" in text_of(page)
        link = next(a["href"] for tag, a in elements(page) if built.build_id in (a.get("href") or ""))
        assert (await browser.get(link or "")).status_code == 200

    async def test_a_pause_says_how_it_ends(self, served: Served, browser: Browser, database: Database) -> None:
        """After a rollback builds are paused, and the page says where to resume them."""
        ids = []
        for key in "ab":
            await served.call("append_event", event(key))
            ids.append((await builds.build(database)).snapshot_id)
        await served.call("rollback", {"to": ids[0]})
        assert "paused by a rollback Resume them on the page Changes" in text_of(await _page(browser, "operations"))

    async def test_feedback_is_counted_and_leads_to_its_notes(self, served: Served, browser: Browser) -> None:
        """What agents say of answers is summed by tool; remarks lead to the notes that are meant."""

        async def ask(name: str, **arguments: Any) -> dict[str, Any]:
            answer = await served.post(call(name, arguments), headers(name), path="/mcp/agent")
            content: dict[str, Any] = answer.json()["result"]["structuredContent"]
            return content

        note = (await ask("remember", content="The kiln opens on Friday", topic="kiln", type="fact"))["id"]
        for suggestion in ("say <b>when</b>", ""):
            more = {"suggestion": suggestion} if suggestion else {}
            said = {"tool_name": "recall", "relevant": True, "sufficient": not suggestion, "fragment_ids": [note]}
            assert (await ask("tool_feedback", **said, **more)).get("success"), said
        page = await _page(browser, "operations")
        assert "recall 2 2 1" in text_of(page)
        assert "say &lt;b&gt;when&lt;/b&gt;" in page
        link = next(a["href"] for tag, a in elements(page) if "/notes/" in (a.get("href") or ""))
        assert "The kiln opens on Friday" in text_of((await browser.get(link or "")).text)


class TestUse:
    """Where a tenant has bounds."""

    @pytest.fixture
    def settings(self) -> Settings:
        """A tenant may store a thousand bytes; dashboards have an address."""
        console = ConsoleSettings(enabled=True, grafana_url="https://grafana.example.com/d/myria")
        return replace(LOCAL, auth=AuthSettings(tenant_bytes_stored=1000), console=console)

    async def test_use_is_measured(self, served: Served, browser: Browser) -> None:
        """What is used stands beside what may be used, also as a meter; dashboards are linked."""
        await served.call("append_event", event("a"))
        page = await _page(browser, "operations")
        meters = [attributes for tag, attributes in elements(page) if tag == "meter"]
        assert 0 < int(meters[0]["value"] or "") < int(meters[0]["max"] or "") == 1000
        assert [a["rel"] for tag, a in elements(page) if "grafana.example.com" in (a.get("href") or "")] == [
            "noreferrer"
        ]


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "//x", "ftp://x", "https://me:secret@x", "https://x/?q", ""]
)
@pytest.mark.parametrize("name", ["grafana_url", "runbooks_url"])
def test_links_go_to_the_web_only(name: str, address: str) -> None:
    """A setting that is no plain address of the web is refused when the server starts."""
    given: dict[str, Any] = {name: address}
    with pytest.raises(ConfigurationError, match=f"console.{name}"):
        ConsoleSettings(**given)


class TestSettings:
    """The page of settings."""

    @pytest.fixture
    def settings(self, tmp_path: Path, database: Database) -> Settings:
        """Settings of all sources."""
        file = tmp_path / "myria.yaml"
        file.write_text("console: {enabled: true}\nbuilder: {max_unindexed_events: 77}\n")
        environment = {"MYRIA_POSTGRES_DSN": database.server_dsn, "MYRIA_CONSOLE_SESSION_S": "600"}
        return Settings.load(file, environment, {"mcp.compress_bytes": 55})

    async def test_each_value_says_where_it_came_from(self, browser: Browser, settings: Settings) -> None:
        """File, environment, command line and default are told apart; the database's password is not shown."""
        page = await _page(browser, "settings")
        text = text_of(page)
        assert "builder.max_unindexed_events MYRIA_BUILDER_MAX_UNINDEXED_EVENTS 77 file /" in text
        assert "console.session_s MYRIA_CONSOLE_SESSION_S 600.0 environment default: 43200.0" in text
        assert "mcp.compress_bytes MYRIA_MCP_COMPRESS_BYTES 55 command line default:" in text
        assert "mcp.linger_s MYRIA_MCP_LINGER_S 5.0 default" in text
        assert "postgres.dsn MYRIA_POSTGRES_DSN (not shown) environment" in text
        assert str(settings.postgres.dsn) not in page

    async def test_settings_are_found_by_a_word(self, browser: Browser) -> None:
        """A filter leaves those that hold a word; another those that were changed."""
        text = text_of(await _page(browser, "settings", q="SESSION_s"))
        assert "console.session_s" in text
        assert "builder.max_unindexed_events" not in text
        changed = text_of(await _page(browser, "settings", changed="on"))
        assert "builder.max_unindexed_events" in changed
        assert "mcp.linger_s" not in changed
        assert "No setting fits" in text_of(await _page(browser, "settings", q="\x00<b>"))


class TestAudit:
    """The journal, where a key is asked for."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Callers need a key."""
        return WITH_KEYS

    @pytest.fixture
    async def store(self, database: Database) -> AsyncIterator[AccessStore]:
        """Keys may be made, of two tenants."""
        async with access_store(database, "other") as opened:
            yield opened

    @pytest.fixture
    async def admin(self, browser: Browser, store: AccessStore) -> Browser:
        """The browser of an administrator."""
        await browser.sign_in(await make_key(store, "ada", roles=("read", "append", "admin"), faces=FACES))
        return browser

    @pytest.fixture
    async def entries(self, database: Database) -> None:
        """10,100 entries, the oldest of another actor, and one of another tenant."""
        connection = await asyncpg.connect(database.superuser_dsn)
        await connection.execute("DELETE FROM myria.access_log")
        await connection.execute(
            "INSERT INTO myria.access_log (tenant_id, at, kind, actor, action, target, outcome, details) "
            "SELECT 'default', timestamptz '2026-01-01 00:00Z' + n * interval '1 minute', 'act', "
            "CASE WHEN n = 1 THEN 'eve' ELSE 'ada' END, CASE WHEN n % 2 = 0 THEN 'rollback' ELSE 'publish' END, "
            "'snap_' || n, CASE WHEN n % 100 = 0 THEN 'stale_parent' ELSE 'ok' END, "
            "CASE WHEN n = 5001 THEN '{\"reason\": \"Kestrel is wrong\"}' ELSE '{}' END::jsonb "
            "FROM generate_series(1, 10100) n"
        )
        await connection.execute(
            "INSERT INTO myria.access_log (tenant_id, kind, actor, action, outcome) "
            "VALUES ('other', 'act', 'eve', 'rollback', 'ok')"
        )
        await connection.close()

    @pytest.mark.usefixtures("entries")
    async def test_entries_are_found_by_each_filter(self, admin: Browser) -> None:
        """Who, what, outcome and times narrow the list, alone and together; it is exported as it is filtered."""

        async def exported(**filters: str) -> list[dict[str, Any]]:
            answer = await admin.get("/console/audit.jsonl", **filters)
            assert answer.headers["content-type"].startswith("application/jsonl")
            return [orjson.loads(line) for line in answer.text.splitlines()]

        assert {entry["outcome"] for entry in await exported(outcome="stale_parent")} == {"stale_parent"}
        assert len(await exported(outcome="stale_parent")) == 101
        assert {entry["action"] for entry in await exported(action="publish", since="2026-01-08T00:00")} == {"publish"}
        between = await exported(since="2026-01-01T00:10", until="2026-01-01T00:20")
        assert [entry["target"] for entry in between] == [f"snap_{n}" for n in range(19, 9, -1)]
        assert [entry["target"] for entry in await exported(actor="eve")] == ["snap_1"]
        assert [entry["target"] for entry in await exported(q="snap_5000", actor="ada")] == ["snap_5000"]
        assert [entry["target"] for entry in await exported(q="kestrel is")] == ["snap_5001"]
        for told in ({"q": "Tried to roll back"}, {"action": "roll back"}):
            found = await exported(**told, until="2026-01-01T00:10")
            assert [entry["target"] for entry in found] == ["snap_8", "snap_6", "snap_4", "snap_2"]
        assert not await exported(until="2020-01-01T00:00")
        page = text_of(await _page(admin, "audit", action="rollback", outcome="stale_parent"))
        assert "snap_10100" in page
        assert "snap_10098" not in page

    @pytest.mark.usefixtures("entries")
    async def test_a_page_looks_at_a_bounded_number_of_entries(self, admin: Browser) -> None:
        """What is sought among many others is found by looking on; no statement reads the whole journal."""
        page = await admin.get("/console/audit", actor="eve")
        assert "None of the 10,000 entries looked at fits" in text_of(page.text)
        older = next(a["href"] for tag, a in elements(page.text) if "before=" in (a.get("href") or ""))
        found = await admin.get(older or "")
        assert "snap_1 ok" in text_of(found.text)
        assert "before=" not in found.text

    @pytest.mark.parametrize("odd", ["no day", "2026-13-01", "9999-12-31T23:59:59+00:01", "\x00", "1" * 5000])
    async def test_odd_filters_get_a_page(self, admin: Browser, odd: str) -> None:
        """A moment that is none is refused by name; other texts find nothing."""
        for name in ("q", "actor", "action", "outcome", "since", "until", "before"):
            page = await admin.get("/console/audit", **{name: odd})
            assert page.status_code in (200, 400), (name, page.text)
            label = {"since": "From", "until": "Until"}.get(name, name)
            assert page.status_code == 200 or f"{label} is no date" in text_of(page.text)

    async def test_who_forgot_something_is_told_to_administrators_alone(
        self, served: Served, admin: Browser, store: AccessStore
    ) -> None:
        """By the key's name, in the audit and on the page of event and note; to others these pages say nothing."""
        text = await make_key(store, "ada", name="the cleaner", roles=("read", "append"), faces=FACES)

        async def cleaner(tool: str, path: str, **arguments: Any) -> dict[str, Any]:
            sent = {**headers(tool), "authorization": f"Bearer {text}"}
            answer = await served.post(call(tool, arguments), sent, path=path)
            content: dict[str, Any] = answer.json()["result"]["structuredContent"]
            return content

        ids = [(await cleaner("append_event", "/mcp", **event(key, participants=["ada"])))["event_id"] for key in "abc"]
        note = (await cleaner("remember", "/mcp/agent", content="The kiln opens on Friday", importance=0.4))["id"]
        await cleaner("withdraw_events", "/mcp", event_ids=ids)
        await cleaner("forget", "/mcp/agent", id=note)
        who = f"by the cleaner {text.split('_')[1]}"
        for sought in ({"q": "the cleaner"}, {"actor": "Cleaner"}, {"actor": text.split("_")[1]}):
            audit = await admin.get("/console/audit", **sought)
            assert f"forgot the note {note}" in text_of(audit.text)
        assert f"forgot the event {ids[0]} and 2 more" in text_of(audit.text)
        for path in (f"/console/events/{ids[1]}", f"/console/notes/{note}"):
            page = await admin.get(path)
            assert path in audit.text or ids[1] in path
            assert text_of(page.text).count(who) == 1
        assert f"{who} {note}" in text_of(await _page(admin, "notes"))
        other = a_browser(served)
        await other.sign_in(text)
        for path in (f"/console/events/{ids[1]}", f"/console/notes/{note}"):
            gone = text_of((await other.get(path)).text)
            assert "Forgotten" in gone
            assert "by the cleaner" not in gone
        assert who not in text_of(await _page(other, "notes"))
        await cleaner("restore_events", "/mcp", event_ids=ids[1:2])
        back = text_of((await admin.get(f"/console/events/{ids[1]}")).text)
        assert back.count(who) == 2
        assert "Restored" in back
        for source, is_linked in ((ids[2], True), ("evt_" + "0" * 32, False)):
            sourced = {"content": f"The lamp hangs at {source}", "importance": 0.4, "source": source}
            kept = (await cleaner("remember", "/mcp/agent", **sourced))["id"]
            page = await admin.get(f"/console/notes/{kept}")
            assert source in text_of(page.text)
            assert (f'"/console/events/{source}' in page.text) == is_linked
        eve = a_browser(served)
        await eve.sign_in(await make_key(store, "eve", roles=("read", "admin"), faces=FACES))
        hers = await eve.get("/console/audit")
        for thing, path in (
            (f"event {ids[0]}", f"/console/events/{ids[0]}"),
            (f"note {note}", f"/console/notes/{note}"),
        ):
            assert f"the {thing}" in text_of(hers.text)  # without a link, as its page does not open
            assert path not in hers.text
            assert path in audit.text
            assert (await eve.get(path)).status_code == 404
        assert (await eve.get(f"/console/notes/{note}")).status_code == 404
        await other.client.aclose()
        await eve.client.aclose()

    async def test_refusals_are_shown_with_what_went_wrong(
        self, served: Served, admin: Browser, store: AccessStore
    ) -> None:
        """What was refused lately stands on Operations, and leads to the journal."""
        reader = await make_key(store, "bob", name="the watch", roles=("read",), faces=FACES)
        sent = {**headers("myria.rollback"), "authorization": f"Bearer {reader}"}
        await served.post(call("myria.rollback", {}), sent, path="/mcp/admin")
        await served.post(call("myria.rollback", {}), sent, path="/mcp/admin")
        for _ in range(200):
            page = await _page(admin, "operations")
            if "asked for /mcp/admin, 2 times" in text_of(page):
                break
        assert text_of(page).count("Refused: role_required") == 1
        link = next(a["href"] for tag, a in elements(page) if "outcome=role_required" in (a.get("href") or ""))
        tried = f"the watch {reader.split('_')[1]} asked for /mcp/admin"
        assert tried in text_of(page)
        text = text_of((await admin.get(link or "")).text)
        assert tried in text
        assert "role_required /mcp/admin" in text
