"""The pages of notes: what is true now, what it replaced, where it comes from; forgetting and undoing it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.finding import anybody
from myria.notes.holding import Holding
from myria.settings import AuthSettings, ConsoleSettings, ReviewSettings, Settings
from myria_server.console.wording import differences
from tests.console.conftest import Browser, elements, text_of
from tests.console.things import FACES, a_browser
from tests.server.wire import Served, call, event, headers
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database


async def _tool(served: Served, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await served.post(call(tool, arguments), headers(tool), path="/mcp/agent")
    content: dict[str, Any] = answer.json()["result"]["structuredContent"]
    return content


async def _remember(served: Served, content: str, **fields: Any) -> str:
    kept = await _tool(served, "remember", content=content, **fields)
    note_id: str = kept["id"]
    return note_id


@given(st.text("ab c.", max_size=60), st.text("ab c.", max_size=60))
def test_a_difference_is_whole(older: str, newer: str) -> None:
    """Without what is new, the parts are the older text; without what is gone, the newer one."""
    parts = differences(older, newer)
    assert "".join(part.text for part in parts if part.change != "new") == older
    assert "".join(part.text for part in parts if part.change != "gone") == newer
    assert all(part.text for part in parts)


def test_a_difference_is_told_by_words() -> None:
    """What both texts say is not told as changed; of very long texts the whole middle is."""
    parts = differences("The kiln opens on Friday.", "The kiln opens on Monday at ten.")
    assert [(part.change, part.text) for part in parts] == [
        ("same", "The kiln opens on "),
        ("gone", "Friday"),
        ("new", "Monday at ten"),
        ("same", "."),
    ]
    long = differences("a " + "b c " * 5_000 + "d", "a " + "c b " * 5_000 + "d")
    assert [part.change for part in long] == ["same", "gone", "new", "same"]


async def test_a_note_shows_how_its_versions_differ(served: Served, browser: Browser) -> None:
    """The current version stands first; what it changed is marked word by word, and each version leads to its event."""
    note_id = await _remember(served, "Rosa prefers tea to milk", type="preference")
    await _tool(served, "amend", id=note_id, content="Rosa prefers coffee to milk", importance=0.9)
    page = await browser.get(f"/console/notes/{note_id}")
    assert "<del>tea</del><ins>coffee</ins>" in page.text
    assert "importance:" in text_of(page.text)
    events = [a["href"] or "" for tag, a in elements(page.text) if tag == "a" and "/events/" in (a.get("href") or "")]
    assert len(events) == 2
    for address in events:
        assert note_id in (await browser.get(address)).text


async def test_versions_of_a_note_come_in_pages(served: Served, browser: Browser) -> None:
    """Many versions stand on several pages, each on one, newest first."""
    note_id = await _remember(served, "The count is 1")
    for count in range(2, 24):
        await _tool(served, "amend", id=note_id, content=f"The count is {count}")
    page = await browser.get(f"/console/notes/{note_id}")
    assert "version 23 ·" in text_of(page.text)
    assert "version 4 ·" in text_of(page.text)
    assert "version 3 ·" not in text_of(page.text)
    (more,) = [a["href"] or "" for tag, a in elements(page.text) if tag == "a" and "upto=" in (a.get("href") or "")]
    rest = text_of((await browser.get(more)).text)
    assert [f"version {number} ·" in rest for number in (4, 3, 2, 1)] == [False, True, True, True]


async def test_a_replaced_note_leads_to_what_is_true_now(served: Served, browser: Browser) -> None:
    """Each note of a chain names what replaced it, the last one as what is true now, and what it replaced."""
    first = await _remember(served, "The kiln opens on Friday")
    second = await _remember(served, "The kiln opens on Monday", supersedes=[first])
    third = await _remember(served, "The kiln opens on Sunday", supersedes=[second])
    said = text_of((await browser.get(f"/console/notes/{first}")).text)
    assert "What was replaced Replaced by: The kiln opens on Monday What is true now: The kiln opens on Sunday" in said
    page = await browser.get(f"/console/notes/{third}")
    assert "What it replaced The kiln opens on Monday" in text_of(page.text)
    assert second in page.text


async def test_links_of_a_note_stand_by_what_they_say(served: Served, browser: Browser) -> None:
    """A link is told from either of its notes, each in words of its own."""
    error = await _remember(served, "The kiln stops at 900 degrees", type="error")
    cause = await _remember(served, "A fuse of the kiln was too weak")
    await _tool(served, "link", fromId=error, toId=cause, relationType="caused_by")
    assert "Caused by A fuse" in text_of((await browser.get(f"/console/notes/{error}")).text)
    assert "Caused The kiln stops" in text_of((await browser.get(f"/console/notes/{cause}")).text)


async def test_feedback_on_a_note_stands_on_its_page(served: Served, browser: Browser) -> None:
    """What an agent said of an answer that held the note is there, and not on another note's page."""
    rated = await _remember(served, "Rosa prefers tea")
    other = await _remember(served, "The glaze is red")
    said = {"relevant": True, "sufficient": False, "suggestion": "say which tea"}
    await _tool(served, "tool_feedback", tool_name="recall", fragment_ids=[rated], **said)
    assert "relevant, not sufficient: say which tea" in text_of((await browser.get(f"/console/notes/{rated}")).text)
    assert "Feedback" not in text_of((await browser.get(f"/console/notes/{other}")).text)


async def test_a_long_note_is_whole_on_its_page_alone(served: Served, browser: Browser) -> None:
    """In the list it begins, in no more lines than a narrow page shows: hidden lines of a link cover what follows."""
    text = "Packing: " + "; ".join(f"item {number}" for number in range(100))
    note_id = await _remember(served, text)
    assert text in text_of((await browser.get(f"/console/notes/{note_id}")).text)
    listed = text_of((await browser.get("/console/notes")).text)
    assert text[:200] in listed
    assert text[:300] not in listed


async def test_forgetting_can_be_undone(served: Served, browser: Browser) -> None:
    """The page after it offers to undo; a forgotten note's own page no longer says its words, and offers that, too."""
    note_id = await _remember(served, "Rosa prefers tea to coffee", importance=0.4)
    confirm = await browser.get(f"/console/notes/{note_id}/forget")
    done = await browser.submit(confirm, f"/console/notes/{note_id}/forget", {"force": "on"})
    assert "Forgotten" in text_of(done.text)
    gone = await browser.get(f"/console/notes/{note_id}")
    assert "Forgotten note" in text_of(gone.text)
    assert "tea" not in text_of(gone.text)
    await browser.submit(gone, "/console/notes/restore")
    await browser.submit(confirm, f"/console/notes/{note_id}/forget", {"force": "on"})
    undone = await browser.submit(done, "/console/notes/restore")
    assert "Restored. Answers hold it again." in text_of(undone.text)
    assert "Ends never by itself: it was brought back" in text_of(undone.text)
    assert note_id in (await browser.get("/console/notes", q="tea")).text
    refused = await browser.submit(await browser.get("/console/notes"), "/console/notes/restore", {"note": "note_none"})
    assert "note_not_found" in text_of(refused.text)


async def test_what_was_forgotten_lately_is_listed_with_an_undo(served: Served, browser: Browser) -> None:
    """Notes and events, once each, by when and what kind and no word of theirs; to nobody who may not see them."""
    stored = await served.call("append_event", {**event("k", text="the kiln is broken"), "participants": ["rosa"]})
    event_id = stored.content["event_id"]
    note_id = await _remember(served, "Rosa prefers tea to coffee", importance=0.4)
    confirm = await browser.get(f"/console/notes/{note_id}/forget")
    await browser.submit(confirm, f"/console/notes/{note_id}/forget", {"force": "on"})
    confirm = await browser.get(f"/console/events/{event_id}/forget", **{"as": "rosa"})
    await browser.submit(confirm, f"/console/events/{event_id}/forget")
    notes = await browser.get("/console/notes")
    said = text_of(notes.text).partition("Forgotten lately (1)")[2]
    kind = r"A note \(.+\) kept \d+ \w+ \d+, \d\d:\d\d UTC , forgotten"  # by which to tell it from others
    assert said.count(note_id) == len(re.findall(kind, said)) == 1
    assert not {"tea", "kiln"} & set(said.split())
    assert event_id not in notes.text
    undone = await browser.submit(notes, "/console/notes/restore")
    assert "Restored. Answers hold it again." in text_of(undone.text)
    rosa = await browser.get("/console/notes", **{"as": "rosa"})
    listed = text_of(rosa.text).partition("Forgotten lately (1)")[2]
    assert re.search(r"An event of the channel \S+ , \d+ \w+ 2026, .* UTC , forgotten", listed)
    undone = await browser.submit(rosa, f"/console/events/{event_id}/restore")
    assert "Restored. Answers hold it again. the kiln is broken" in text_of(undone.text)
    assert "Nothing that you may restore was forgotten lately" in text_of((await browser.get("/console/notes")).text)


async def test_forgetting_a_note_twice_says_that_it_is_forgotten(served: Served, browser: Browser) -> None:
    """A form sent again leads to the same page, with an undo; so does the page that asks; no other note is named so."""
    note_id = await _remember(served, "Rosa prefers tea to coffee", importance=0.4)
    confirm = await browser.get(f"/console/notes/{note_id}/forget")
    pages = [
        await browser.submit(confirm, f"/console/notes/{note_id}/forget", {"force": "on"}),
        await browser.submit(confirm, f"/console/notes/{note_id}/forget"),
        await browser.get(f"/console/notes/{note_id}/forget"),
    ]
    assert pages[0].url == pages[1].url
    for page in pages:
        assert page.status_code == 200
        assert "Forgotten. No answer holds it any more" in text_of(page.text)
    undone = await browser.submit(pages[2], "/console/notes/restore")
    assert "Restored. Answers hold it again." in text_of(undone.text)
    absent = await browser.get("/console/notes/note_none/forget")
    assert absent.status_code == 404
    assert "note_not_found" in text_of(absent.text)


async def test_a_protected_note_says_that_it_stays(served: Served, browser: Browser) -> None:
    """Without saying so once more, an anchor is not forgotten, and the page does not claim it."""
    note_id = await _remember(served, "Never fire above 1,260 degrees", isAnchor=True)
    confirm = await browser.get(f"/console/notes/{note_id}/forget")
    kept = await browser.submit(confirm, f"/console/notes/{note_id}/forget")
    assert "Nothing was forgotten" in text_of(kept.text)
    assert (await browser.get(f"/console/notes/{note_id}")).status_code == 200


async def test_a_note_is_corrected_after_a_look(served: Served, browser: Browser) -> None:
    """What changes is shown before; then the version before stays in the history, with who corrected it and why; the
    form sent again changes nothing, and an Undo puts the old words back."""
    note_id = await _remember(served, "Rosa prefers tea to milk", type="preference", importance=0.4)
    path = f"/console/notes/{note_id}/correct"
    form = await browser.get(await _link(browser, f"/console/notes/{note_id}", "/correct"))
    sent = {"content": "Rosa prefers coffee to milk", "importance": "0.9", "ends": "never", "reason": "she said so"}
    preview = await browser.submit(form, path, sent)
    assert "<del>tea</del><ins>coffee</ins>" in preview.text
    for part in ("Importance: 0.4 → 0.9", "never: an anchor", "It replaces version 1", "she said so"):
        assert part in text_of(preview.text)
    assert await _versions(served, note_id) == ["Rosa prefers tea to milk"]
    for _ in range(2):
        done = await browser.submit(preview, path, {"confirmed": "on"})
        assert "Corrected. Answers hold it as it says here" in text_of(done.text)
        assert await _versions(served, note_id) == ["Rosa prefers coffee to milk", "Rosa prefers tea to milk"]
    assert "corrected by mcp : she said so" in text_of(done.text)
    undone = await browser.submit(done, path)
    assert "taken back" in text_of(undone.text)
    assert (await _versions(served, note_id))[0] == "Rosa prefers tea to milk"
    kept = (await _tool(served, "fragment_history", id=note_id))["current"]
    assert (kept["importance"], kept["is_anchor"], kept["type"]) == (0.4, False, "preference")


async def test_an_earlier_version_is_put_back_after_a_look(served: Served, browser: Browser) -> None:
    """Its link leads to the form with what that version said; a version that is not kept is not named as its words."""
    note_id = await _remember(served, "The kiln opens on Friday", topic="opening")
    for day, topic in (("Monday", "kiln"), ("Sunday", "kiln")):
        await _tool(served, "amend", id=note_id, content=f"The kiln opens on {day}", topic=topic)
    form = await browser.get(await _link(browser, f"/console/notes/{note_id}", "/correct?from=1"))
    assert "The form begins with version 1." in text_of(form.text)
    lost = await browser.get(f"/console/notes/{note_id}/correct", **{"from": "9"})
    assert "begins with version" not in text_of(lost.text)
    preview = await browser.submit(form, f"/console/notes/{note_id}/correct")
    assert "<del>Sunday</del><ins>Friday</ins>" in preview.text
    assert "Subject: kiln → opening" in text_of(preview.text)
    await browser.submit(preview, f"/console/notes/{note_id}/correct", {"confirmed": "on"})
    assert (await _versions(served, note_id))[0] == "The kiln opens on Friday"


async def test_a_correction_of_what_was_changed_meanwhile_is_not_made(served: Served, browser: Browser) -> None:
    """The form says what the note says now and keeps what was typed; so it does where nothing, or no text, is typed."""
    note_id = await _remember(served, "The kiln opens on Friday", type="fact")
    other = await _remember(served, "The kiln opens at ten", type="fact")
    path = f"/console/notes/{note_id}/correct"
    form = await browser.get(path)
    preview = await browser.submit(form, path, {"content": "The kiln opens on Monday"})
    again = await browser.submit(preview, path, {"again": "on"})
    assert ">\nThe kiln opens on Monday</textarea>" in again.text
    for typed, said in (({}, "change something"), ({"content": " "}, "Text is empty"), ({"type": "x"}, "Kind must be")):
        refused = await browser.submit(form, path, typed)
        assert (refused.status_code, said in text_of(refused.text)) == (400, True), typed
    refused = await browser.submit(form, path, {"importance": "much", "topic": "the kiln"})
    assert "Importance must be a number from 0 to 1" in text_of(refused.text)
    assert 'name="topic" value="the kiln"' in refused.text
    same = await browser.submit(
        await browser.submit(form, path, {"content": "The kiln opens at ten"}), path, {"confirmed": "on"}
    )
    assert "another note says that already" in text_of(same.text)
    assert f"/notes/{other}" in same.text
    await _tool(served, "amend", id=note_id, content="The kiln opens on Sunday")
    for page in (form, preview):
        late = await browser.submit(page, path, {"content": "The kiln opens on Monday", "confirmed": "on"})
        assert late.status_code == 409
        assert "It says now: The kiln opens on Sunday" in text_of(late.text)
        assert ">\nThe kiln opens on Monday</textarea>" in late.text
    assert len(await _versions(served, note_id)) == 2


async def test_a_long_note_in_any_script_is_corrected(served: Served, browser: Browser) -> None:
    """As long as notes may be, of several lines, and with markup in it, which stays text."""
    text = "<img src=x onerror=alert(1)>\n</textarea><script>窯\n" + "\U00020bb7" * 9_900
    note_id = await _remember(served, text)
    path = f"/console/notes/{note_id}/correct"
    preview = await browser.submit(await browser.get(path), path, {"content": text.replace("\n", "\r\n") + " 陶"})
    done = await browser.submit(preview, path, {"confirmed": "on"})
    assert (await _versions(served, note_id))[0] == f"{text} 陶"
    for page in (preview, done, await browser.get(path)):
        assert page.status_code == 200
        assert not [tag for tag, a in elements(page.text) if tag == "img" or (tag == "script" and not a.get("src"))]


async def test_a_note_is_added_by_hand(served: Served, browser: Browser) -> None:
    """For all agents or for one, once however often the form is sent; what is typed stays where it is refused."""
    form = await browser.get(await _link(browser, "/console/notes?as=fern", "/notes/new"))
    sent = {"content": "The kiln opens on Friday", "topic": "opening", "for": "fern"}
    for said in ("Kept. Answers hold it from now on.", "It is kept, and was before this form was sent"):
        added = await browser.submit(form, "/console/notes/new", sent)
        assert said in text_of(added.text)
    assert "opening" in text_of(added.text)
    listed = await browser.get("/console/notes", **{"as": "fern"})
    assert "1 note " in text_of(listed.text)
    assert "The kiln opens on Friday" not in (await browser.get("/console/notes")).text
    for typed, status in (({"content": ""}, 400), ({"for": "x" * 300}, 400), ({"content": "Otherwise"}, 409)):
        refused = await browser.submit(form, "/console/notes/new", sent | typed)
        assert refused.status_code == status
        assert 'aria-invalid="true"' in refused.text
        assert 'name="topic" value="opening"' in refused.text
    again = await browser.submit(await browser.get("/console/notes/new"), "/console/notes/new", sent)
    assert "It is kept, and was before" in text_of(again.text)


async def _link(browser: Browser, path: str, part: str) -> str:
    """Return the address of the first link of a page that has this part."""
    found = elements((await browser.get(path)).text)
    return next(a["href"] or "" for tag, a in found if tag == "a" and part in (a.get("href") or ""))


async def _versions(served: Served, note_id: str) -> list[str]:
    """Return what the versions of a note say, newest first."""
    return [one["content"] for one in (await _tool(served, "fragment_history", id=note_id))["versions"]]


@pytest.mark.parametrize(("field", "value"), [("kind", "error"), ("topic", "kiln"), ("as", "ana")])
async def test_notes_are_filtered(served: Served, browser: Browser, field: str, value: str) -> None:
    """By kind, by subject and by whom they belong to."""
    await _remember(served, "The glaze is red", type="fact", topic="glaze")
    await _remember(served, "The kiln stops at 900 degrees", type="error", topic="kiln", agentId="ana")
    said = text_of((await browser.get("/console/notes", **{"as": "ana", field: value})).text)
    assert "The kiln stops" in said
    assert ("The glaze is red" in said) == (field == "as")


async def test_notes_are_listed_alone(served: Served, browser: Browser) -> None:
    """The page of notes lists what agents keep on purpose, and not what was said in conversations."""
    await served.call("append_event", {**event("k", text="Rosa drinks tea at four"), "participants": ["agent", "me"]})
    await _remember(served, "Rosa drinks no coffee")
    for search in ({}, {"q": "Rosa drinks"}):
        said = text_of((await browser.get("/console/notes", **search)).text)
        assert "no coffee" in said
        assert "at four" not in said


async def test_looking_at_notes_is_no_use(memory: Memory, served: Served, browser: Browser) -> None:
    """Whoever looks at notes in the console keeps none of them alive: only programs that find one use it."""
    note_id = await _remember(served, "Rosa drinks no coffee")
    for _ in range(3):
        await browser.get("/console/notes")
        await browser.get("/console/notes", q="coffee")
        await browser.get("/console/people/one", name="agent")
    await memory.usage.write()
    assert "Used not yet" in text_of((await browser.get(f"/console/notes/{note_id}")).text)


async def test_notes_that_nothing_replaced_lead_to_each_other(served: Served, browser: Browser) -> None:
    """Of one kind and subject, where they say different things; the newest first, also of another group of people."""
    older = await _remember(served, "The kiln opens on Friday", type="fact", topic="kiln", agentId="ana")
    newer = await _remember(served, "The kiln opens on Monday", type="fact", topic="kiln")
    again = await _remember(served, "The kiln  opens on Monday", type="fact", topic="kiln", agentId="ana")
    error = await _remember(served, "The kiln stops at 900 degrees", type="error", topic="kiln")
    general = await _remember(served, "Yes", type="fact", topic="general")
    assert await _remember(served, "No", type="fact", topic="general")
    page = text_of((await browser.get(f"/console/notes/{older}", **{"as": "ana"})).text)
    assert "Also kept about kiln . None replaced another: forget what holds no longer." in page
    assert page.count(", newer than this one") == 1
    newest = await browser.get(f"/console/notes/{newer}", **{"as": "ana"})
    assert older in newest.text
    assert again not in newest.text
    for note_id in (error, general):
        assert "Also kept" not in text_of((await browser.get(f"/console/notes/{note_id}")).text)
    listed = text_of((await browser.get("/console/notes", **{"as": "ana"})).text)
    assert listed.count("Also kept about this: The kiln opens on Friday") == 2
    assert listed.count("Kept later about this: The kiln opens on Monday") == 1
    # Of others nothing is shown.
    assert "Friday" not in text_of((await browser.get(f"/console/notes/{newer}")).text)
    assert "Friday" not in text_of((await browser.get("/console/notes")).text)


async def test_what_replaced_another_is_not_told_as_its_opposite(served: Served, browser: Browser) -> None:
    """Where one replaced the other, the page says so, and nothing is left to decide."""
    older = await _remember(served, "The kiln opens on Friday", type="fact", topic="kiln")
    newer = await _remember(served, "The kiln opens on Monday", type="fact", topic="kiln", supersedes=[older])
    for note_id in (older, newer):
        assert "Also kept" not in text_of((await browser.get(f"/console/notes/{note_id}")).text)
    listed = await browser.get("/console/notes", superseded="on")
    assert older in listed.text
    assert "kept about this" not in text_of(listed.text)


class TestWithKeys:
    """Keys differ in what they may bring back."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Callers need a key, and decisions wait for a review."""
        return Settings(
            console=ConsoleSettings(enabled=True),
            auth=AuthSettings(mode="keys"),
            review=ReviewSettings(kinds=("decision",)),
        )

    async def test_what_is_gone_is_told_to_those_who_may_bring_it_back(
        self, served: Served, memory: Memory, database: Database
    ) -> None:
        """They are led to the undo of what was forgotten, its people to why it is held; to others neither ever was."""
        kept = parse_event(event("k", text="the kiln is broken", participants=["ada"]), Limits())
        event_id = (await memory.log.append_events("default", [kept]))[0].event_id
        notes = Notes(memory.log, content_characters=1_000, holding=Holding(kinds=frozenset({"decision"})))
        note_id, held_id = [
            (await notes.remember("default", ("ada",), Draft(content=said, kind=kind), contract="memento")).note_id
            for said, kind in (("the kiln is red", "fact"), ("we buy a kiln", "decision"))
        ]
        await notes.forget("default", note_id, may_see=anybody, force=True)
        await memory.withdrawals.withdraw("default", [event_id], "forgotten", may_see=anybody)
        forgotten = dict.fromkeys((event_id, note_id), "It was forgotten")
        held = {held_id: "It waits for a review"}
        told: dict[tuple[str, str], dict[str, str]] = {
            ("ada", "append"): {**forgotten, **held},
            ("ada", "admin"): {**forgotten, **held},
            ("ada", "read"): held,
            ("bob", "append"): {},
            ("bob", "admin"): {},
        }
        async with access_store(database) as store:
            for (own, role), said in told.items():
                browser = a_browser(served)
                await browser.sign_in(await make_key(store, own, roles={"read", role}, faces=FACES))
                for thing_id in (event_id, note_id, held_id):
                    asked = await browser.get("/console/ask", q="kiln", expected=thing_id)
                    shown = text_of(asked.text).partition("What you miss:")[2]
                    assert said.get(thing_id, "Nothing of that id is visible") in shown, (own, role)
                    place = f"/console/{'events' if thing_id == event_id else 'notes'}/{thing_id}"
                    page = await browser.get(place)
                    is_review = thing_id == held_id and role == "admin"
                    assert page.status_code == (200 if thing_id in said or is_review else 404)
                    assert (f'href="{place}"' in asked.text) == (thing_id in said)
                    assert (">Restore<" in page.text) == (thing_id in said and thing_id != held_id and role == "append")
                    assert ("kiln" in page.text) == is_review
                if (own, role) == ("ada", "append"):
                    gone = await browser.get(f"/console/notes/{note_id}")
                    back = await browser.submit(gone, "/console/notes/restore")
                    assert "Restored. Answers hold it again." in text_of(back.text)
                    await notes.forget("default", note_id, may_see=anybody, force=True)
                await browser.client.aclose()
