"""The page on which a reviewer looks at held notes, and decides."""

from __future__ import annotations

import re
from typing import Any

import pytest

from myria.log.limits import MAX_REASON
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.settings import AuthSettings, ConsoleSettings, ReviewSettings, Settings
from tests.console.conftest import LOCAL, Browser, elements, text_of
from tests.server.test_review import ask
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database


@pytest.fixture
def settings() -> Settings:
    return Settings(console=ConsoleSettings(enabled=True), review=ReviewSettings(kinds=("decision",)))


async def _hold(served: Served, content: str, **more: Any) -> str:
    kept = await ask(served, "remember", content=content, type="decision", **more)
    note_id: str = kept["id"]
    return note_id


async def _recalled(served: Served) -> list[str]:
    answer = await ask(served, "recall", text="kiln", agentId="fern")
    return sorted(note["content"] for note in answer["fragments"])


async def test_a_note_is_shown_with_its_reasons_and_approved(served: Served, browser: Browser) -> None:
    """Who said it, which rule holds it, what was said before, and its words against the note that it would replace."""
    old = await ask(served, "remember", content="The kiln opens on Friday", agentId="fern", sessionId="s", type="fact")
    note_id = await _hold(
        served,
        "The kiln opens on Monday",
        supersedes=[old["id"]],
        agentId="fern",
        sessionId="s",
        source="mail",
        topic="opening",
    )
    page = await browser.get("/console/review")
    text = text_of(page.text)
    assert "1 note waits; 1 on this page" in text
    assert "Seen by" not in text
    for part in (
        "said by fern",
        "subject opening",
        "importance",
        "review.kinds=decision",
        "source mail",
        "would replace",
        "What was said before",
        "Would be seen by",
    ):
        assert part in text
    assert "<del>Friday</del><ins>Monday</ins>" in page.text
    assert "Review 1 waiting" in text_of((await browser.get("/console/ask")).text)
    evidence = next(
        attributes["href"] or ""
        for tag, attributes in elements(page.text.partition("What was said before")[2])
        if tag == "a"
    )
    assert "The kiln opens on Friday" in text_of((await browser.client.get(evidence)).text)

    done = await browser.submit(
        page, "/console/review/decide", {f"pick_{note_id}": "on", "decision": "approve", "reason": "agreed"}
    )
    assert "1 note approved" in text_of(done.text)
    assert "agreed" in text_of(done.text)
    assert await _recalled(served) == ["The kiln opens on Monday"]
    taken_back = await browser.submit(
        await browser.get("/console/review"), "/console/review/decide", {"note": note_id, "decision": "hold"}
    )
    assert "1 note taken back" in text_of(taken_back.text)
    assert await _recalled(served) == ["The kiln opens on Friday"]


async def test_no_other_page_shows_a_held_note(served: Served, browser: Browser, database: Database) -> None:
    """Neither its event's nor those of its people, its conversation, or the note that it would replace."""
    old = await ask(served, "remember", content="The kiln plan is old", agentId="fern", sessionId="s", type="fact")
    said = {"agentId": "fern", "sessionId": "s", "topic": "quokka", "keywords": ["quokka"], "source": "quokka"}
    note_id = await _hold(served, "The kiln plan needs a quokka", supersedes=[old["id"]], **said)
    (held,) = (await ask(served, "list_held_notes"))["under_review"]
    people = "&".join(f"as={name}" for name in held["participants"])
    found = (await ask(served, "query_event_nodes", participants=held["participants"]))["root"]["children"]
    paths = [
        f"/console/events/{held['event_id']}?{people}",
        *(f"/console/events/{node['event_id']}?{people}" for node in found),
        f"/console/notes/{old['id']}?as=fern",
        "/console/notes?as=fern&q=kiln&superseded=on",
        "/console/notes?as=fern",
        *(f"/console/ask?{people}&{more}" for more in ("q=kiln+plan&why=on", "context=s&order=oldest", "view=topics")),
        f"/console/ask?{people}&q=kiln&why=on&expected={held['event_id']}",
        "/console/topics?as=fern",
        f"/console/topics?{people}&view=time",
        "/console/people",
        "/console/people/one?name=fern",
        "/console/changes",
        "/console/operations",
    ]
    for is_built in (False, True):
        if is_built:
            await builds.build(database)
        for path in paths:
            page = await browser.client.get(path)
            assert page.status_code < 500
            assert "quokka" not in page.text, path
    await ask(served, "decide_notes", note_ids=[note_id], decision="approve")
    shown = [path for path in paths if "quokka" in (await browser.client.get(path)).text]
    assert len(shown) > 5


async def test_a_held_note_has_a_page_that_decides(served: Served, browser: Browser) -> None:
    """Review leads to it: it says that the note is held, and by which rule; it approves, refuses, and takes back."""
    note_id = await _hold(served, "We decided on the kiln", agentId="fern", supersedes=[])
    listed = await browser.get("/console/review")
    page = await browser.get(
        next(a["href"] or "" for _, a in elements(listed.text) if note_id in (a.get("href") or ""))
    )
    assert page.url.path == f"/console/notes/{note_id}"
    for part in (
        "waits for a review",
        "review.kinds=decision",
        "Nobody finds it",
        "We decided on the kiln",
        "said by fern",
    ):
        assert part in text_of(page.text), part
    refused = await browser.submit(page, "/console/review/decide", {"decision": "refuse", "reason": "too dear"})
    assert "1 note refused" in text_of(refused.text)
    page = await browser.get(f"/console/notes/{note_id}")
    assert "A note that was refused" in text_of(page.text)
    assert "too dear" in text_of(page.text)
    await browser.submit(page, "/console/review/decide", {"decision": "hold"})
    page = await browser.get(f"/console/notes/{note_id}")
    await browser.submit(page, "/console/review/decide", {"decision": "approve"})
    assert "Note We decided on the kiln" in text_of(
        (await browser.get(f"/console/notes/{note_id}", **{"as": "fern"})).text
    )
    for path in (f"/console/notes/{note_id}/correct", "/console/notes/note_none"):
        assert (await browser.get(path)).status_code == 404


async def test_a_correction_may_wait(served: Served, browser: Browser) -> None:
    """Its form says so before, and leads to a note that waits; the old one stays until that is approved."""
    kept = await ask(served, "remember", content="The kiln opens on Friday", agentId="fern", type="fact")
    path = f"/console/notes/{kept['id']}/correct"
    sent = {"content": "The kiln opens on Monday", "type": "decision", "reason": "we met"}
    preview = await browser.submit(await browser.get(path, **{"as": "fern"}), path, sent)
    assert "the correction waits for a review" in text_of(preview.text)
    assert not (await ask(served, "list_held_notes"))["under_review"]
    for _ in range(2):
        held = await browser.submit(preview, path, {"confirmed": "on"})
        assert "A note that waits for a review" in text_of(held.text)
        assert "<del>Friday</del><ins>Monday</ins>" in held.text
        assert "we met" in text_of(held.text)
    assert len((await ask(served, "list_held_notes"))["under_review"]) == 1
    assert await _recalled(served) == ["The kiln opens on Friday"]
    await browser.submit(held, "/console/review/decide", {"decision": "approve"})
    assert await _recalled(served) == ["The kiln opens on Monday"]


async def test_many_are_refused_with_one_reason(served: Served, browser: Browser) -> None:
    """Those chosen, and no other; the form sent again changes nothing; what was decided meanwhile is told."""
    ids = [await _hold(served, f"We decided on kiln {number}") for number in range(3)]
    page = await browser.get("/console/review")
    fields = {f"pick_{ids[0]}": "on", f"pick_{ids[1]}": "on", "decision": "refuse", "reason": "no"}
    for _ in range(2):
        done = await browser.submit(page, "/console/review/decide", fields)
        assert "2 notes refused" in text_of(done.text)
    undone = await browser.submit(done, "/console/review/decide")
    assert "2 notes taken back. Notes that" in text_of(undone.text)  # and no Undo of that
    assert len((await ask(served, "list_held_notes"))["under_review"]) == 3
    await browser.submit(page, "/console/review/decide", fields)
    listed = await ask(served, "list_held_notes")
    assert [note["note_id"] for note in listed["under_review"]] == ids[2:]
    late = await browser.submit(
        page, "/console/review/decide", {**fields, f"pick_{ids[2]}": "on", "decision": "approve"}
    )
    assert "2 notes were not decided; 1 was approved" in text_of(late.text)
    assert "note_decided" in text_of(late.text)


async def test_a_form_that_chooses_nothing_or_nonsense_is_told_so(served: Served, browser: Browser) -> None:
    """No page breaks, and nothing is decided."""
    note_id = await _hold(served, "We decided on the kiln")
    page = await browser.get("/console/review")
    picked = {f"pick_{note_id}": "on"}
    for fields in (
        {"decision": "approve"},
        {**picked, "decision": "no"},
        picked,
        {"pick_": "on", "decision": "approve"},
        {"pick_a\0b": "on", "decision": "approve"},
        {"note": "x" * 10_000, "decision": "approve"},
        {**picked, "decision": "approve", "reason": "x" * (MAX_REASON + 1)},
        {**picked, "decision": "approve", "reason": "a\0b"},
    ):
        answer = await browser.submit(page, "/console/review/decide", fields)
        assert answer.status_code < 500
        assert "problem" in answer.text
    for parameters in ({"cursor": "x"}, {"before": "review:x"}, {"kind": "\0"}, {"participant": "x" * 9_999}):
        assert (await browser.get("/console/review", **parameters)).status_code in (400, 422)
    assert len((await ask(served, "list_held_notes"))["under_review"]) == 1


async def test_lists_have_pages_and_filters(served: Served, browser: Browser) -> None:
    """The next page is one link away, and stays where its form is refused; a filter that fits nothing says so."""
    for number in range(22):
        await _hold(served, f"We decided on kiln {number}.")
    page = await browser.get("/console/review")
    assert "We decided on kiln 21." in page.text
    assert "We decided on kiln 1." not in page.text
    older = page.text.partition(">Earlier ones<")[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
    second = await browser.client.get(older)
    assert "We decided on kiln 1." in second.text
    box = next(a["name"] or "" for _, a in elements(second.text) if (a.get("name") or "").startswith("pick_"))
    sent = {box: "on", "decision": "approve", "reason": "x" * (MAX_REASON + 1)}
    refused = await browser.submit(second, "/console/review/decide", sent)
    ticked = [a["name"] for _, a in elements(refused.text) if "checked" in a]
    assert (refused.status_code, ticked) == (400, [box])
    done = await browser.submit(refused, "/console/review/decide", {**sent, "reason": ""})
    assert "1 note approved" in text_of(done.text)
    chosen = page.text.partition('id="kind"')[2].partition("</select>")[0]
    assert 'value="fact_l0"' in chosen
    assert not re.search("[a-z]_", text_of(chosen))  # a person reads words, a program its kind
    assert "No note that waits fits" in text_of((await browser.get("/console/review", kind="fact")).text)
    assert "kiln 21" in (await browser.get("/console/review", kind="decision")).text


async def test_long_notes_make_short_pages(served: Served, browser: Browser) -> None:
    """A page keeps within 150 kB, and the next one has the rest."""
    for number in range(12):
        await _hold(served, f"We decided on kiln {number}. " + "word " * 1_900)
    path, seen = "/console/review", 0
    while path:
        page = await browser.client.get(path)
        assert len(page.content) < 150_000
        seen += page.text.count('name="pick_')
        before = page.text.partition(">Earlier ones<")
        path = before[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&") if before[1] else ""
    assert seen == 12


async def test_hostile_notes_are_text(served: Served, browser: Browser) -> None:
    """Markup in what is said, by whom, and why it is decided, makes no element."""
    hostile = '<img src=x onerror="alert(1)">\u202e<script>alert(2)</script>'
    note_id = await _hold(served, f"We decided {hostile}", source=hostile, agentId="<b>fern</b>")
    page = await browser.get("/console/review")
    done = await browser.submit(
        page, "/console/review/decide", {f"pick_{note_id}": "on", "decision": "refuse", "reason": hostile}
    )
    for shown in (page, done):
        assert not [tag for tag, _ in elements(shown.text) if tag in ("img", "b")]
        assert "onerror" not in str([attributes for _, attributes in elements(shown.text)])


async def test_a_held_snapshot_is_named_with_its_pages(served: Served, browser: Browser, database: Database) -> None:
    """It leads to the pages that publish or discard it."""
    await served.call("append_events", {"events": [event(str(n), text=f"the kiln {n}") for n in range(4)]})
    held = (await builds.build(database, hold=True)).snapshot_id or ""
    page = await browser.get("/console/review")
    assert held in page.text
    assert f"/console/changes/publish?snapshot={held}" in page.text


class TestKeys:
    """Whoever may decide sees what a held note says; whoever would see it once it is approved is told why not."""

    @pytest.fixture
    def settings(self) -> Settings:
        auth = AuthSettings(mode="keys")
        return Settings(console=ConsoleSettings(enabled=True), auth=auth, review=ReviewSettings(kinds=("decision",)))

    async def test_only_reviewers_see_what_a_held_note_says(
        self, browser: Browser, memory: Memory, database: Database
    ) -> None:
        """Its people are told that it waits and who decides; to others there is none."""
        draft = Draft(content="We decided on a quokka", kind="decision")
        held = await memory.notes.remember("default", ("ada",), draft, contract="memento")
        faces = ("core", "agent", "admin")
        async with access_store(database) as store:
            keys = {
                "its people": await make_key(store, "ada", faces=faces),
                "others": await make_key(store, "bob", faces=faces),
                "reviewer": await make_key(store, "bob", roles=("read", "admin"), faces=faces),
            }
        pages = {}
        for name, key in keys.items():
            await browser.sign_in(key)
            pages[name] = await browser.get(f"/console/notes/{held.note_id}")
        assert [page.status_code for page in pages.values()] == [200, 404, 200]
        assert ["quokka" in page.text for page in pages.values()] == [False, False, True]
        said = text_of(pages["its people"].text)
        assert "review.kinds=decision" in said
        assert "An administrator decides about it" in said
        assert "decision=" not in pages["its people"].text.replace("kinds=decision", "")


class TestWithoutPolicy:
    """Nothing is held where no policy is set."""

    @pytest.fixture
    def settings(self) -> Settings:
        return LOCAL

    async def test_the_page_says_how_to_switch_it_on(self, browser: Browser) -> None:
        """It names the three settings."""
        text = text_of((await browser.get("/console/review")).text)
        for name in ("review.kinds", "review.sources", "review.confidence_below"):
            assert name in text
