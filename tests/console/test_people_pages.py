"""The pages of people: how much is remembered of each, all of one as a file, and the names as which one may ask."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator

import pytest

from myria.access.store import AccessStore
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.log.masks import Mask, Masks
from myria.log.withdrawal.commands import Withdrawals
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria.settings import Settings
from myria_server.console import remembered
from tests.console.conftest import WITH_KEYS, Browser, elements, text_of
from tests.server.wire import Served, call, event, headers
from tests.support import builds
from tests.support.keys import access_store, make_key
from tests.support.patience import until
from tests.support.postgres import Database


async def _counted(served: Served, *participants: str, exactly: str = "") -> tuple[int, str]:
    """Return how many events the API lists to some participants, or of one alone, and when the last one was."""
    asked = {"masks": [{"participants": [exactly], "exact": True}]} if exactly else {"participants": list(participants)}
    count, cursor, last = 0, None, ""
    while True:
        answer = await served.call("query_event_nodes", {**asked, "limit": 7, **({"cursor": cursor} if cursor else {})})
        nodes = answer.content["root"]["children"]
        count += len(nodes)
        last = max([last, *(node["timestamp"] for node in nodes)])
        cursor = answer.content["next_cursor"]
        if cursor is None:
            return count, last


async def _talk(served: Served) -> None:
    """Keep 25 events of several groups, some of them internal, forgotten, replaced, or notes that ended."""
    groups = [["ada", "bob"], ["ada", "bob", "helper-bot"], ["ada"], ["bob", "cy"], ["cy"]]
    for number in range(25):
        stamp = f"2026-03-{number + 1:02}T10:00:00Z"
        fields = {"participants": groups[number % 5], "timestamp": stamp, "internal": number in {5, 6}}
        await served.call("append_event", {**event(f"k{number}", text=f"tea number {number}"), **fields})
    ids = [
        node["event_id"]
        for node in (await served.call("query_event_nodes", {"participants": ["ada"], "limit": 50})).content["root"][
            "children"
        ]
    ]
    await served.call("withdraw_events", {"event_ids": ids[:1], "participants": ["ada"]})
    await served.call("append_event", {**event("new", text="more"), "participants": ["ada"], "supersedes": ids[1:2]})


@pytest.mark.parametrize("is_built", [False, True])
async def test_counts_of_people_agree_with_the_api(
    served: Served, browser: Browser, database: Database, is_built: bool
) -> None:
    """A name's count and last moment are those of the events that the query tool lists to the same names."""
    await _talk(served)
    if is_built:
        await builds.build(database)
        await served.call("append_event", {**event("late", text="late"), "participants": ["ada", "cy"]})
    for asked in ([], ["ada"]):
        page = await browser.get("/console/people", **{"as": asked})
        links = [a.get("href") or "" for tag, a in elements(page.text) if tag == "a"]
        names = {link.rpartition("name=")[2]: link for link in links if "/people/one" in link}
        assert {"ada", "bob", "helper-bot"} <= names.keys()
        for name, address in names.items():
            count, last = await _counted(served, *{*asked, name})
            row = page.text[page.text.index(f"name={name}") :].partition("</tr>")[0]
            assert f'<td class="number">{count}</td>' in row, name
            assert last[:16].replace("T", " ") in row or not count
            assert ("agent" in text_of(row.partition("</td>")[0])) == (name == "helper-bot")
            person = await browser.get(address)
            assert f"{count} event{'s' * (count != 1)} that you may see" in text_of(person.text), name
            for shared in ("keep", "remove") if not asked else ():
                erasing = text_of((await browser.get("/console/people/erase", name=name, shared=shared)).text)
                [(total, hidden)] = re.findall(
                    r"(\d+) events? to erase (?:(\d+) of these, not visible to you)?", erasing
                )
                own, _ = await _counted(served, exactly=name)
                assert int(total) - int(hidden or 0) == (count if shared == "remove" else own), (name, shared)


async def test_somebody_of_whom_all_is_forgotten_has_pages(served: Served, browser: Browser) -> None:
    """Where all that one sees, of several groups, is forgotten, the pages of people count nothing, and say so."""
    sent = [
        await served.call("append_event", event(other, text="tea", participants=["ada", other]))
        for other in ("bob", "cy")
    ]
    ids = [answer.content["event_id"] for answer in sent]
    await served.call("withdraw_events", {"event_ids": ids, "participants": ["ada"]})
    for path, fields in (("/console/people", {}), ("/console/people/one", {"name": "ada"})):
        page = await browser.get(path, **{"as": "ada"}, **fields)
        assert page.status_code == 200, path
        assert "bob" not in text_of(page.text)


async def test_a_person_has_one_page_of_all_that_is_remembered(
    served: Served, browser: Browser, database: Database
) -> None:
    """Notes, topics and newest events stand on it, each with its way; an empty name is refused."""
    await served.call(
        "append_events", {"events": [event(str(n), text=f"tea at {n}", participants=["ana"]) for n in range(6)]}
    )
    await builds.build(database)
    sent = headers("remember")
    await served.post(call("remember", {"content": "Ana likes tea", "agentId": "ana"}), sent, path="/mcp/agent")
    page = await browser.get("/console/people/one", name="ana")
    said = text_of(page.text)
    assert "7 events that you may see" in said
    assert "1 note read" in said
    assert "Ana likes tea" in said
    assert "tea at 5" in said
    for part in ("/notes/note_", "/topics/top_", "/events/evt_", "/people/export", "/people/erase", "/forget"):
        address = next(a["href"] for tag, a in elements(page.text) if tag == "a" and part in (a.get("href") or ""))
        assert (await browser.get(address or "")).status_code == 200, part
    assert (await browser.get("/console/people/one")).status_code == 400
    for path in ("/console/people/one", "/console/people/erase"):  # both lead to what others said
        found = elements((await browser.get(path, name="ana")).text)
        links = [a["href"] for tag, a in found if tag == "a" and (a.get("href") or "").endswith("q=ana")]
        assert links == ["/console/ask?q=ana", "/console/notes?q=ana"], path


async def test_notes_about_somebody_who_took_no_part_are_counted(served: Served, browser: Browser) -> None:
    """As many as recall finds for the subject, and the page of notes lists; each visitor's own."""

    async def remember(content: str, **more: object) -> None:
        sent = call("remember", {"content": content, "topic": "Ana", "type": "fact", **more})
        await served.post(sent, headers("remember"), path="/mcp/agent")

    for number in range(12):
        await remember(f"Ana keeps {number} cats", agentId="fern")
    await remember("Ana left on Monday", agentId="other")
    for asked, count in (("fern", 12), ("other", 1), ("ben", 0)):
        page = await browser.get("/console/people/one", name="ana", **{"as": asked})
        said = text_of(page.text)
        arguments = {"agentId": asked, "topic": "ana", "pageSize": 50, "tokenBudget": 100_000}
        found = await served.post(call("recall", arguments), headers("recall"), path="/mcp/agent")
        assert len(found.json()["result"]["structuredContent"]["fragments"]) == count
        assert (f"{count} note{'s' * (count > 1)} about ana" in said) == bool(count)
        links = [a.get("href") or "" for tag, a in elements(page.text) if tag == "a"]
        assert sum("/notes/note_" in link for link in links) == min(count, 10)
        for link in [link for link in links if "topic=ana" in link]:
            listed = elements((await browser.get(link)).text)
            assert (
                len({a["href"] for tag, a in listed if tag == "a" and "/notes/note_" in (a.get("href") or "")}) == count
            )


async def test_all_that_is_remembered_of_one_can_be_saved(served: Served, browser: Browser) -> None:
    """The file holds each event once, oldest first, also internal ones, and says that it is whole."""
    texts = [f"tea number {number}" for number in range(450)]
    events = [
        {
            **event(text, text=text, participants=["ana"], timestamp=f"2026-03-01T10:{n // 60:02}:{n % 60:02}Z"),
            "internal": n == 7,
        }
        for n, text in enumerate(texts)
    ]
    for start in range(0, 450, 150):
        await served.call("append_events", {"events": events[start : start + 150]})
    saved = await browser.get("/console/people/export", name="ana")
    assert re.match('attachment; filename="remembered-ana-20[0-9-]{8}.jsonl"', saved.headers["content-disposition"])
    *lines, last = [json.loads(line) for line in saved.text.splitlines()]
    assert [line["payload"]["text"] for line in lines] == texts
    assert last == {"complete": True, "events": 450, "name": "ana"}
    assert [line["internal"] for line in lines].index(True) == 7
    other = await browser.get("/console/people/export", name="ben")
    assert json.loads(other.text) == {"complete": True, "events": 0, "name": "ben"}
    hostile = (await browser.get("/console/people/export", name='../"; 窯\\evil.exe')).headers["content-disposition"]
    assert re.fullmatch(
        r"attachment; filename=\"remembered-__evil_exe-[0-9-]{10}\.jsonl\"; "
        r"filename\*=UTF-8''remembered-%E7%AA%AF_evil_exe-[0-9-]{10}\.jsonl",
        hostile,
    )


async def test_whoever_goes_away_in_the_middle_of_a_file_leaves_no_error(
    served: Served, browser: Browser, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """The server stops reading, and reports no fault of its own."""
    for start in range(0, 600, 100):
        events = [event(f"k{n}", text=f"tea {n}", participants=["ana"]) for n in range(start, start + 100)]
        await served.call("append_events", {"events": events})
    for _ in range(10):
        async with browser.client.stream("GET", "/console/people/export", params={"name": "ana"}) as answer:
            await anext(answer.aiter_raw())
    await until(lambda: not memory.database.in_use, "the last read ends")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


class TestRevoked:
    """Whoever has a key, until it is taken back."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Callers need a key."""
        return WITH_KEYS

    async def test_a_file_ends_with_the_key(
        self, browser: Browser, memory: Memory, store: AccessStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a revoked key began to save stops, and its last line says why."""
        monkeypatch.setattr(remembered, "_EXPORTED_AT_ONCE", 10)
        text = "t" * 60_000  # more than is under way between the server and a browser that reads slowly
        for start in range(0, 240, 40):
            events = [event(f"k{n}", text=text, participants=["ada"]) for n in range(start, start + 40)]
            await memory.log.append_events("default", [parse_event(one, Limits()) for one in events])
        key = await make_key(store, "ada", roles=("read",))
        await browser.sign_in(key)
        async with browser.client.stream("GET", "/console/people/export", params={"name": "ada"}) as answer:
            read = answer.aiter_lines()
            lines = [await anext(read)]
            await store.revoke_key(key.split("_")[1])
            while (await browser.client.get("/console/people")).status_code == 200:
                pass
            lines += [line async for line in read]
        last = json.loads(lines[-1])
        assert (last["complete"], last["error"]) == (False, "credential_invalid")
        assert last["events"] == len(lines) - 1 < 240


async def test_a_name_may_hold_a_comma(served: Served, browser: Browser) -> None:
    """Each name has a field of its own, so every name can be asked as, also beside others."""
    names = ["Lovelace, Ada", "bob"]
    await served.call("append_event", event("k", text="tea with a countess", participants=names))
    page = await browser.get("/console/ask", q="tea", **{"as": names})
    assert "tea with a countess" in text_of(page.text)
    fields = [a.get("value") for tag, a in elements(page.text) if tag == "input" and a.get("name") == "as"]
    assert fields == [*names, None]
    people = elements((await browser.get("/console/people")).text)
    person = next(a["href"] for tag, a in people if tag == "a" and "Lovelace" in (a.get("href") or ""))
    assert "tea with a countess" in text_of((await browser.get(person or "")).text)


async def test_names_are_offered(served: Served, browser: Browser) -> None:
    """Where one chooses as whom to ask, known names are offered; at most a hundred."""
    for start in range(0, 130, 65):
        some = [event(f"k{n}", text="tea", participants=[f"person{n:03}", "x"]) for n in range(start, start + 65)]
        await served.call("append_events", {"events": some})
    for path in ("/console/ask", "/console/topics", "/console/people"):
        page = await browser.get(path)
        offered = page.text.partition('<datalist id="names">')[2].partition("</datalist>")[0]
        assert [a["value"] for tag, a in elements(offered)] == [f"person{n:03}" for n in range(100)]


Offer = tuple[tuple[str, ...], tuple[str, ...], list[str]]
OFFERS: list[Offer] = [
    (("ada",), (), []),
    (("ada",), ("b*",), ["bob"]),
    ((), ("user:*",), ["user:1", "user:2"]),
    ((), ("cy", "eve"), ["cy", "eve"]),
]
"""Participants of a key, its patterns, and the names that it is offered."""


class TestKeys:
    """A key sees, and is offered, nobody but those whom it may know."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Callers need a key."""
        return WITH_KEYS

    @pytest.fixture
    async def store(self, database: Database) -> AsyncIterator[AccessStore]:
        """The keys."""
        async with access_store(database) as opened:
            yield opened

    async def _append(self, memory: Memory, *groups: tuple[str, ...]) -> None:
        talk = [event("-".join(group), text=f"tea of {group}", participants=list(group)) for group in groups]
        await memory.log.append_events("default", [parse_event(one, Limits()) for one in talk])

    async def _append_and_forget(self, memory: Memory, *groups: tuple[str, ...]) -> None:
        await self._append(memory, *groups)
        for group in groups:
            nodes = await memory.retrieval.query_event_nodes("default", EventNodesQuery(masks=Masks.of([Mask(group)])))
            ids = [node["event_id"] for node in nodes["root"]["children"]]
            await Withdrawals(memory.log).withdraw("default", ids, "forgotten", may_see=lambda _: True)

    async def test_a_key_sees_what_it_shares_with_somebody(
        self, browser: Browser, memory: Memory, store: AccessStore
    ) -> None:
        """A key of one name opens the page of another with what both share, though it may not ask as that one."""
        await self._append(memory, ("ada", "bob"), ("bob", "cy"), ("ada",))
        await self._append_and_forget(memory, ("ada", "bob", "eve"), ("ada", "eve"))
        await browser.sign_in(await make_key(store, "ada", roles=("read",)))
        people = await browser.get("/console/people")
        assert re.findall(r'name=(\w+)">|<td class="number">(\d+)<', people.text) == [
            *(("ada", ""), ("", "2"), ("", "2")),
            *(("bob", ""), ("", "1"), ("", "1")),
        ]
        page = await browser.get("/console/people/one", name="bob")
        assert "1 event that you may see" in text_of(page.text)
        assert "Ask as" not in text_of(page.text)
        for path in ("one", "export"):
            page = await browser.get(f"/console/people/{path}", name="bob")
            assert "'ada', 'bob'" in page.text.replace("&#39;", "'"), path
            assert "'cy'" not in page.text.replace("&#39;", "'"), path
            nobody = await browser.get(f"/console/people/{path}", name="cy")
            assert "tea of" not in nobody.text

    @pytest.mark.parametrize("case", OFFERS)
    async def test_a_key_is_offered_names_that_it_may_ask_as(
        self,
        browser: Browser,
        memory: Memory,
        store: AccessStore,
        case: tuple[tuple[str, ...], tuple[str, ...], list[str]],
    ) -> None:
        """Names beside its own that its patterns allow; without own participants, those that match a pattern.

        Names of which nothing is visible are not among them.
        A key that must name somebody is asked for a name, and offered none before.
        """
        own, may_ask, offered = case
        await self._append(memory, ("ada", "bob"), ("bill",), ("cy",), ("user:1",), ("user:2", "x"))
        await self._append_and_forget(memory, ("ada", "bygone"), ("user:3",))
        await browser.sign_in(await make_key(store, *own, roles=("read",), may_ask=may_ask))
        if not own:
            asks = await browser.get("/console/ask")
            assert [a["name"] for tag, a in elements(asks.text) if tag == "input" and a.get("name") == "as"] == ["as"]
        page = await browser.get("/console/ask", **({"as": offered[0]} if offered else {}))
        assert page.status_code == 200
        found = page.text.partition('<datalist id="names">')[2].partition("</datalist>")[0]
        assert [a["value"] for _, a in elements(found)] == offered
