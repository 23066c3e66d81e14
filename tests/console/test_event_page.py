"""The page of one event says all that its visitor may know of it, and nothing else."""

from __future__ import annotations

import json
from html import unescape
from typing import Any

from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import Served, call, event, headers
from tests.support import builds
from tests.support.postgres import Database


async def _append(served: Served, key: str, text: str, **fields: Any) -> str:
    stored = await served.call("append_event", {**event(key, text=text), **fields})
    assert not stored.is_error, stored.content
    event_id: str = stored.content["event_id"]
    return event_id


def _links(page: str, part: str) -> list[str]:
    """Return the addresses of links that hold a text."""
    return [a["href"] or "" for tag, a in elements(page) if tag == "a" and part in (a.get("href") or "")]


async def test_an_event_names_its_topics_and_the_way_to_them(
    served: Served, browser: Browser, database: Database
) -> None:
    """An indexed event leads to each topic above it; one of the tail says that the next build places it."""
    built = [await _append(served, str(n), f"the kiln opens at {n}", context_id="kiln") for n in range(6)]
    early = await browser.get(f"/console/events/{built[2]}", **{"as": "user_42"})
    assert "No snapshot is built yet" in text_of(early.text)
    snapshot = (await builds.build(database)).snapshot_id or ""
    page = await browser.get(f"/console/events/{built[2]}", **{"as": "user_42"})
    assert snapshot in page.text
    topics = _links(page.text, "/topics/")
    assert topics
    for address in topics:
        assert "Events 6" in text_of((await browser.get(address)).text)
    tail = await _append(served, "tail", "the kiln is closed", context_id="kiln")
    page = await browser.get(f"/console/events/{tail}", **{"as": "user_42"})
    assert "It is not in the snapshot yet. It is found already; the next build places it." in text_of(page.text)


async def test_an_event_stands_within_its_conversation(served: Served, browser: Browser) -> None:
    """Before it and after it stand the next events of its conversation, with a way to those further off."""
    ids = [
        await _append(served, str(n), f"line {n}.", context_id="talk", timestamp=f"2026-03-01T10:{n:02}:00Z")
        for n in range(20)
    ]
    await _append(served, "other", "of another talk", context_id="other", timestamp="2026-03-01T10:09:30Z")
    page = await browser.get(f"/console/events/{ids[9]}", **{"as": "user_42"})
    around = text_of(page.text).partition("What was said around it")[2].partition("How it was stored")[0]
    places = [around.index(f"line {n}.") for n in (4, 5, 6, 7, 8)]
    places += [around.index("This event")]
    places += [around.index(f"line {n}.") for n in (10, 11, 12, 13, 14)]
    assert places == sorted(places)
    assert "line 3." not in around
    assert "line 15." not in around
    assert "another talk" not in around
    (earlier,) = _links(page.text, "until=")
    (later,) = _links(page.text, "since=")
    assert "line 3." in text_of((await browser.get(earlier)).text)
    assert "line 15." in text_of((await browser.get(later)).text)


async def test_what_replaced_an_event_and_what_it_replaced(served: Served, browser: Browser) -> None:
    """The older event leads to the newer and back; who may not see one of them learns nothing of it."""
    old = await _append(served, "old", "the kiln opens on Friday", participants=["ada", "bob"])
    stored = await served.call(
        "append_event",
        {**event("new", text="the kiln opens on Monday"), "participants": ["bob"], "supersedes": [old]},
    )
    assert not stored.is_error, stored.content
    new = stored.content["event_id"]
    page = await browser.get(f"/console/events/{old}", **{"as": "bob"})
    assert _links(page.text, f"/events/{new}")
    page = await browser.get(f"/console/events/{new}", **{"as": "bob"})
    assert "What it replaced the kiln opens on Friday" in text_of(page.text)
    assert _links(page.text, f"/events/{old}")
    page = await browser.get(f"/console/events/{old}", **{"as": "ada"})
    assert "A newer event replaced this one." in text_of(page.text)
    assert new not in page.text


async def test_a_forgotten_event_leaves_no_trace_on_other_pages(served: Served, browser: Browser) -> None:
    """What an event replaced leaves its page once it is forgotten; no page says its words any more."""
    old = await _append(served, "old", "the kiln opens on Friday")
    stored = await served.call("append_event", {**event("new", text="the kiln opens on Monday"), "supersedes": [old]})
    new = stored.content["event_id"]
    forgotten = await served.call("withdraw_events", {"event_ids": [old], "participants": ["user_42"]})
    assert not forgotten.is_error, forgotten.content
    page = await browser.get(f"/console/events/{new}", **{"as": "user_42"})
    assert "What it replaced" not in text_of(page.text)
    for path in (f"/console/events/{old}", "/console/audit", "/console/notes"):
        assert "the kiln opens on Friday" not in (await browser.get(path, **{"as": "user_42"})).text


async def test_an_event_leads_to_why_an_answer_lacks_it(served: Served, browser: Browser) -> None:
    """Ask then holds its id, and waits for the question; senders and authors of events stand there as speakers do."""
    event_id = await _append(served, "k", "", payload={"text": "the kiln is red", "sender": "Ida"})
    page = await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})
    (address,) = _links(page.text, f"expected={event_id}")
    asked = await browser.get(address)
    assert f'name="expected" value="{event_id}"' in asked.text
    for view in ("best", "topics", "text"):
        assert "It is shown." in text_of((await browser.get(f"{address}&view={view}")).text)
    assert "· Ida ·" in text_of(asked.text)


async def test_an_event_says_who_may_see_it_and_why(served: Served, browser: Browser) -> None:
    """Its participants lead to their pages, and the page says by which names the visitor sees it."""
    event_id = await _append(served, "k", "tea", participants=["ada", "bob", "cy"])
    page = await browser.get(f"/console/events/{event_id}", **{"as": ["ada", "bob"]})
    assert "You see it because you ask as ada and bob , who all took part." in text_of(page.text)
    assert len(_links(page.text, "/people/one")) == 3


async def test_an_event_has_the_receipt_of_its_append(served: Served, browser: Browser) -> None:
    """Number, key and hints are those that the append stored."""
    stored = await served.call(
        "append_event", {**event("key-7", text="tea"), "topic_hints": [{"hint": "drinks", "confidence": 0.5}]}
    )
    page = await browser.get(f"/console/events/{stored.content['event_id']}", **{"as": "user_42"})
    receipt = text_of(page.text).partition("How it was stored")[2]
    assert f"Number in the log {stored.content['event_seq']}" in receipt
    assert "key-7" in receipt
    assert "drinks (0.5)" in receipt


async def test_a_version_of_a_note_leads_to_its_note(served: Served, browser: Browser) -> None:
    """The event of an older version names the note, and which version the note has by now."""
    sent = headers("remember")
    kept = await served.post(call("remember", {"content": "Rosa prefers tea"}), sent, path="/mcp/agent")
    note_id = kept.json()["result"]["structuredContent"]["id"]
    await served.post(
        call("amend", {"id": note_id, "content": "Rosa prefers coffee"}), headers("amend"), path="/mcp/agent"
    )
    found = await served.call("query_event_nodes", {"include_superseded": True, "order": "oldest"})
    ids = [node["event_id"] for node in found.content["root"]["children"]]
    first = await browser.get(f"/console/events/{ids[0]}")
    assert "its version 1; its version now is 2" in text_of(first.text)
    assert (await browser.get(_links(first.text, f"/notes/{note_id}")[0])).status_code == 200
    second = await browser.get(f"/console/events/{ids[1]}")
    assert "What it replaced Rosa prefers tea" in text_of(second.text)


async def test_an_event_without_text_shows_its_strings(served: Served, browser: Browser) -> None:
    """A payload of any form is shown as text and as JSON."""
    event_id = await _append(served, "k", "", payload={"order": {"item": "a red glaze", "number": 12}})
    page = await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})
    assert "a red glaze" in text_of(page.text).partition("When")[0]
    assert '"number": 12' in text_of(page.text)
    for address in ("/console/ask", f"/console/events/{event_id}"):  # and its strings stand in a list as well
        shown = text_of((await browser.get(address, **{"as": "user_42"})).text).partition("Payload as JSON")[0]
        assert "a red glaze" in shown
        assert '"item"' not in shown


async def test_a_long_payload_says_what_is_left_out_and_is_saved_whole(served: Served, browser: Browser) -> None:
    """The page shows its beginning up to the end of a line, and leads to all of it, as a file, for who may see it."""
    payload = {"text": "", "rows": [{"number": n, "name": f"<kiln> of Ada {n}"} for n in range(4_000)]}
    event_id = await _append(served, "k", "", payload=payload)
    page = await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})
    shown = unescape(page.text.partition("Payload as JSON")[2].partition("<bdi>")[2].partition("</bdi>")[0])
    whole = json.dumps(payload, indent=2, sort_keys=True)
    assert whole.startswith(shown + "\n")
    assert f" … {len(whole) - len(shown):,} more characters".replace(",", "\u202f") in page.text
    (address,) = _links(page.text, "/payload.json")
    saved = await browser.get(address)
    assert saved.json() == payload
    assert saved.headers["content-type"] == "application/json"
    assert saved.headers["content-disposition"] == f'attachment; filename="{event_id}.json"'
    assert saved.headers["cache-control"] == "no-store"
    assert (await browser.get(address.replace("user_42", "somebody"))).status_code == 404


async def test_an_event_is_titled_by_what_it_says(served: Served, browser: Browser) -> None:
    """Not by its number, which counts the events of others, too; a long or hostile text makes a short plain title."""
    for text, speaker, title in (
        ("the kiln opens\non Friday", "ada", "the kiln opens on Friday, ada"),
        ("\u202etxt </title><script> " + "kiln " * 9_000, "ada", "txt </title><script> kiln kiln kiln"),
        ("\u202e\u2066", "\u202e", "tool_result"),
    ):
        payload = {"text": text, "speaker": speaker}
        event_id = await _append(served, title, "", payload=payload, type="tool_result")
        page = await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})
        shown = unescape(page.text.partition("<title>")[2].partition("</title>")[0])
        assert shown.startswith(title)
        assert len(shown) < 100
        assert not set(shown) & {"\u202e", "\u2066"}
        assert page.text.count("<title>") == 1
        assert "<h1><bdi>tool_result</bdi> by <bdi>" in page.text


async def test_an_event_is_forgotten_and_restored(served: Served, browser: Browser) -> None:
    """The page before shows it, the page after says no word of it and offers to undo; opening pages changes nothing."""
    event_id = await _append(served, "k", "the kiln is broken")
    confirm = await browser.get(f"/console/events/{event_id}/forget", **{"as": "user_42"})
    assert "the kiln is broken" in text_of(confirm.text)
    assert (await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})).status_code == 200
    done = await browser.submit(confirm, f"/console/events/{event_id}/forget")
    assert "Forgotten" in text_of(done.text)
    assert "kiln" not in text_of(done.text)
    assert (
        "kiln"
        not in text_of((await browser.get("/console/ask", q="kiln", **{"as": "user_42"})).text).partition("Answer")[2]
    )
    back = await browser.submit(done, f"/console/events/{event_id}/restore")
    assert "the kiln is broken" in text_of(back.text)
    assert "Restored. Answers hold it again." in text_of(back.text)


async def test_what_was_said_later_of_what_a_match_names_stands_beside_it(
    served: Served, browser: Browser, database: Database
) -> None:
    """The latest state of each subject that an older match or an event's page names, each once."""
    days = {1: "is in a case in Braga with Petra", 3: "is in its case in Porto", 6: "and its case went to a museum"}
    ids = {}
    for day, said in days.items():
        for minute in range(3):
            at = f"2026-03-{day:02}T10:{minute:02}:00Z"
            text = f"The violin {said}{'.' * minute}"
            ids[day] = await _append(served, f"{day} {minute}", text, timestamp=at, context_id=f"talk{day}")
    asides = [
        await _append(served, text, text, timestamp="2026-03-01T10:03:00Z", context_id="talk1")
        for text in ("Petra bakes a sourdough", "In that case Petra bakes a rye loaf")
    ]
    of_two = {
        1: ["The violin is in a case in Braga with Petra", "so is the passport in its cover, and the violin"] * 2,
        6: ["The violin and its case went to a museum"] * 3,
        8: ["The passport and its cover lie in the safe"] * 3,
    }
    for day, texts in of_two.items():
        for minute, text in enumerate(texts):
            at, names = f"2026-03-{day:02}T10:{minute:02}:00Z", ["user_43", "agent_1"]
            key = f"of two {day} {minute}"
            await _append(
                served, key, f"{text}{'.' * minute}", timestamp=at, context_id=f"two{day}", participants=names
            )
    before = await browser.get("/console/ask", q="violin Braga", **{"as": "user_42"})
    assert "Later in" not in text_of(before.text)  # without a snapshot nobody knows of what an event is
    await builds.build(database)
    later = "on 6 March 2026 UTC : user_42 : “ The violin and its case went to a museum"
    searched = text_of((await browser.get("/console/ask", q="violin Braga", **{"as": "user_42"})).text)
    assert searched.count("Later in") == searched.count(later) == 1
    assert searched.index("Petra") < searched.index("Later in") < searched.index(later)
    page = await browser.get(f"/console/events/{ids[3]}", **{"as": "user_42"})
    assert later in text_of(page.text)
    assert '<bdi>1–6 March 2026</bdi><span class="utc"> UTC</span><bdi>: ' in page.text
    assert "Later in" not in text_of((await browser.get(f"/console/events/{ids[6]}", **{"as": "user_42"})).text)
    for aside in asides:  # what its neighbours name, and what shares no word but the subject's name
        beside = await browser.get(f"/console/events/{aside}", **{"as": "user_42"})
        assert "Later in" not in text_of(beside.text)
    of_both = text_of((await browser.get("/console/ask", q="violin Braga", **{"as": "user_43"})).text)
    assert of_both.count("Later in") == of_both.count(later) + of_both.count("The passport and its cover lie in") == 2
    by_topic = text_of((await browser.get("/console/ask", q="violin", view="topics", **{"as": "user_42"})).text)
    assert by_topic.index("latest, on 6 March 2026") < by_topic.index("Petra")
    await served.call("withdraw_events", {"event_ids": [ids[6]], "participants": ["user_42"]})
    searched = text_of((await browser.get("/console/ask", q="violin Braga", **{"as": "user_42"})).text)
    assert "Later in" not in searched  # what a subject says of it is hidden until the next build


_ARGUMENTS = {"city": "Oslo <b>", "days": [1, 2]}
_ARGUMENTS_AS_TEXT = json.dumps(_ARGUMENTS)


async def test_a_call_of_a_tool_and_its_result_lead_to_each_other(served: Served, browser: Browser) -> None:
    """Each names the tool, its arguments and what it gave, in shapes of OpenAI, Anthropic, turns and events."""
    function = {"name": "get_weather", "arguments": _ARGUMENTS_AS_TEXT}
    item = {"type": "function_call", "call_id": "c", "metadata": {"name": "get_weather"}, "content": [{}]}
    shapes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "chat": (
            {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": "rain"},
        ),
        "responses": (
            {"type": "function_call", "call_id": "c", "id": "fc_1", **function},
            {"type": "function_call_output", "call_id": "c", "id": "fc_2", "output": "rain"},
        ),
        "messages": (
            {"content": [{"type": "tool_use", "id": "c", "name": "get_weather", "input": _ARGUMENTS}]},
            {"content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "rain"}]}]},
        ),
        "turn": (
            {"text": _ARGUMENTS_AS_TEXT, "speaker": "assistant", "item": item},
            {"text": "rain", "item": {"type": "function_call_output", "call_id": "c", "output": "rain"}},
        ),
        "event": (
            {"tool": "get_weather", "call_id": "c", "arguments": _ARGUMENTS},
            {"tool": "get_weather", "call_id": "c", "result": "rain"},
        ),
    }
    for name, (calls, gives) in shapes.items():
        said_by, got_by = ("tool_call", "tool_result") if name == "event" else ("message", "message")
        asked, given = [
            await _append(served, f"{name} {at}", "", payload=payload, type=kind, context_id=name, timestamp=at)
            for payload, kind, at in (
                (calls, said_by, "2026-03-01T10:00:00Z"),
                (gives, got_by, "2026-03-01T10:01:00Z"),
            )
        ]
        call_page = await browser.get(f"/console/events/{asked}", **{"as": "user_42"})
        said, _, around = text_of(call_page.text).partition("Who may see it")
        lines = "Call of get_weather city: Oslo <b> days: [1,2]"
        assert f"{lines} Result of get_weather · open it rain" in said, (name, said)
        assert said.count("Oslo") == 1
        assert ("I look." in said) == (name == "chat")
        assert "its call" in around
        assert len(_links(call_page.text, f"/events/{given}?")) == 2
        result_page = await browser.get(f"/console/events/{given}", **{"as": "user_42"})
        said = text_of(result_page.text).partition("Who may see it")[0]
        lines = lines.replace("get_weather", "get_weather · open it")
        assert f"{lines} Result of get_weather rain" in said, (name, said)
        assert len(_links(result_page.text, f"/events/{asked}?")) == 2
        assert "<b>" not in call_page.text + result_page.text


async def test_a_long_result_of_a_tool_is_folded(served: Served, browser: Browser) -> None:
    """Its own page begins with few words of it, whatever kind of event it is; one that failed says so."""
    failed = [{"type": "tool_result", "tool_use_id": "x", "is_error": True, "content": "no such city"}]
    await _append(served, "failed", "", payload={"content": failed}, context_id="talk")
    payload = {"text": "4 °C. " * 500, "tool": "get_weather"}
    event_id = await _append(served, "long", "", payload=payload, type="tool_result", context_id="talk")
    page = (await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})).text
    assert "<details><summary><bdi>4 °C. 4 °C." in page
    assert "Result of get_weather 4 °C." in text_of(page)
    assert "Error no such city" in text_of(page)


async def test_what_only_looks_like_a_call_is_shown_as_it_is(served: Served, browser: Browser) -> None:
    """Payloads are anybody's: a page opens, and shows all their strings, whatever their fields hold."""
    deep = "[" * 900 + "]" * 900
    odd: tuple[Any, ...] = (
        {"tool_calls": "mango"},
        {"tool_calls": [7, {"function": "mango"}, {"function": {"name": ["mango"], "arguments": {"a": None}}}]},
        {"tool_calls": [{"id": {"a": 1}, "function": {"name": "mango", "arguments": '{"deep": ' + deep + "}"}}] * 20},
        {"role": "tool", "content": {"mango": 7}},
        {"role": ["tool"], "type": {"tool_use": "mango"}, "content": [[], 7, {"type": ["tool_use"]}]},
        {"content": [{"type": "tool_use", "input": "mango"}, {"type": "tool_result", "content": ["mango", None]}]},
        {"item": {"type": "function_call", "metadata": ["mango"], "content": "mango"}},
        {"item": "mango", "text": ""},
    )
    for number, payload in enumerate(odd):
        event_id = await _append(served, f"odd {number}", "", payload=payload, type="tool_call")
        page = await browser.get(f"/console/events/{event_id}", **{"as": "user_42"})
        assert page.status_code == 200, payload
        assert "mango" in text_of(page.text).partition("Payload as JSON")[0]
