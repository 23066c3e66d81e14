"""Pages of the console show what tools answer, and what its visitor may see."""

from __future__ import annotations

import re

import pytest

from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.erasure.carrying import ErasureCarrier
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.settings import Settings
from myria_server.console.rendering import in_percent
from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import Served, call, event, headers
from tests.support import builds
from tests.support.postgres import Database

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\u202eevil" onclick="x" \'"{{ 7 * 7 }}'


async def test_an_answer_leads_to_its_event_and_topic(served: Served, browser: Browser, database: Database) -> None:
    """From an answer to its event is one click, and so is the way to its topic."""
    await served.call("append_events", {"events": [event(f"k{n}", text=f"the kiln opens at {n}") for n in range(6)]})
    await builds.build(database)
    best = await browser.get("/console/ask", q="when does the kiln open?", **{"as": "user_42"})
    assert "the kiln opens at 3" in text_of(best.text)
    event_link = next(a["href"] for tag, a in elements(best.text) if tag == "a" and "/events/" in (a.get("href") or ""))
    page = await browser.get(event_link or "")
    assert page.status_code == 200
    assert "Who may see it agent_1 , user_42" in text_of(page.text)
    by_topic = await browser.get("/console/ask", q="kiln", view="topics", **{"as": "user_42"})
    topic_links = [a["href"] for tag, a in elements(by_topic.text) if "/topics/" in (a.get("href") or "")]
    topic = await browser.get(topic_links[0] or "")
    assert topic.status_code == 200
    assert "Events 6" in text_of(topic.text)


async def test_an_empty_answer_says_whether_anything_could_be_found(served: Served, browser: Browser) -> None:
    """Who sees no event at all is told so, and as whom to ask; else how many events were searched in vain."""
    for key in "ab":
        await served.call("append_event", event(key, text=f"the kiln {key}"))
    for path in ({"q": "kiln"}, {"q": "kiln", "view": "topics"}, {"q": "kiln", "view": "text"}):
        page = await browser.get("/console/ask", **path, **{"as": "eve"})
        assert "Nothing is kept that eve may see, whatever is asked." in text_of(page.text)
        assert "Ask as one of them: agent_1 , user_42 ." in text_of(page.text)
        assert "Ask in other words" not in text_of(page.text)
    for path in ({"q": "xylophone", "since": "2027-01-01"}, {"channel": "nowhere"}):
        said = text_of((await browser.get("/console/ask", **path, **{"as": "user_42"})).text)
        assert "Nothing was found among the 2 events that user_42 may see." in said
        assert "Ask in other words, as other names, or with fewer filters." in said


async def test_a_name_of_another_spelling_is_a_click_away(served: Served, browser: Browser) -> None:
    """Where nothing is visible under a name, the page leads to what is under its other spelling, asked the same."""
    await served.call("append_event", {**event("k", text="the kiln opens on Friday"), "participants": ["dana", "bob"]})
    for view in ("best", "topics", "text"):
        page = await browser.get("/console/ask", q="kiln", view=view, **{"as": ["bob", "Dana"]})
        assert "Did you mean dana ?" in text_of(page.text)
        [lead] = {a["href"] or "" for _, a in elements(page.text) if "as=bob&as=dana" in (a.get("href") or "")}
        assert f"view={view}" in lead
        assert "the kiln opens on Friday" in text_of((await browser.get(lead)).text)


async def test_the_text_for_a_model_names_its_tokens(served: Served, browser: Browser) -> None:
    """The third view shows what a model would read, and how many tokens it costs."""
    await served.call("append_event", event("k", text="the kiln opens on Friday"))
    page = await browser.get("/console/ask", q="kiln", view="text", tokens="500", **{"as": "user_42"})
    assert "of 500 tokens" in text_of(page.text)
    assert "Records from memory, best first." in page.text
    assert "the kiln opens on Friday" in text_of(page.text)


async def test_lines_of_the_text_for_a_model_lead_to_their_events(
    served: Served, browser: Browser, database: Database
) -> None:
    """Each by the handle at its end; what others wrote leads nowhere, even where it looks like one."""
    talk = [event(f"k{n}", text=f"the kiln [e:999999999] opens at {n} [e:999999999]\n[e:999999999]") for n in range(6)]
    await served.call("append_events", {"events": talk})
    await builds.build(database)
    page = await browser.get("/console/ask", q="kiln", view="text", **{"as": "user_42"})
    text = page.text.partition("<pre")[2].partition("</pre>")[0]
    assert "Records from memory, best topic first." in text
    newest = await browser.get("/console/ask", q="kiln", view="text", order="newest", **{"as": "user_42"})
    assert "Records from memory, newest topic first." in newest.text
    leads = [attributes["href"] or "" for tag, attributes in elements(f"<pre{text}") if tag == "a"]
    assert len(leads) > 6
    assert not any("e:999999999" in lead for lead in leads)
    for lead in leads:
        assert "kiln" in text_of((await browser.get(lead)).text)


async def test_hostile_text_stays_text(served: Served, browser: Browser) -> None:
    """Markup in payloads, channels, names and questions is shown, and becomes no element or attribute."""
    name = HOSTILE.replace("\u202e", "")[:60]  # no name may hold marks of direction
    names = [name, "user_42"]
    hostile = {"channel": name, "context_id": name, "type": name}
    stored = await served.call(
        "append_event", {**event("h", text=HOSTILE), "participants": names, "payload": {"text": HOSTILE}, **hostile}
    )
    assert not stored.is_error, stored.content
    event_id = stored.content["event_id"]
    for path in ("/console/ask", "/console/ask?view=topics", "/console/ask?view=text", f"/console/events/{event_id}"):
        page = await browser.get(path, q=HOSTILE, **{"as": "user_42"})
        assert page.status_code == 200, path
        for tag, attributes in elements(page.text):
            assert tag != "img", path
            assert tag != "script" or (attributes["src"] or "").startswith("/console/static/"), path
            assert not any(name.startswith("on") for name in attributes), path
        assert "{{ 7 * 7 }}" in page.text, path


@pytest.mark.parametrize("path", ["/console/ask", "/console/changes", "/console/nowhere", "/console/sign-in"])
async def test_every_page_is_strict(browser: Browser, path: str) -> None:
    """No page may be framed or cached, and none may load or run anything that is not the server's own."""
    page = await browser.get(path)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"
    inline = [a for tag, a in elements(page.text) if "style" in a or (tag == "script" and not a.get("src"))]
    assert not inline


async def test_what_pages_load_is_kept_by_browsers(browser: Browser) -> None:
    """Style and scripts have addresses that change with their content, so they are asked for once; and are small."""
    page = await browser.get("/console/ask")
    loaded = [a.get("href") or a.get("src") or "" for tag, a in elements(page.text) if tag in ("link", "script")]
    size = 0
    for address in loaded:
        answer = await browser.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        size += len(answer.content)
    assert size <= 150_000
    assert (await browser.get("/console/static/secrets.txt")).status_code == 404


@pytest.mark.parametrize("field", ["since=yesterday", "tokens=many", "cursor=zzz", "order=worst", "q=%00", "as=%00"])
async def test_a_wrong_field_is_a_page_with_a_code(browser: Browser, field: str) -> None:
    """What a tool refuses is a page that says why, with the error's code."""
    page = await browser.client.get(f"/console/ask?view=text&{field}")
    assert page.status_code == 400
    assert "Code:" in text_of(page.text)


@pytest.mark.parametrize("path", ["/console/ask", "/console/ask?q=kiln&view=topics", "/console/topics?view=timeline"])
async def test_who_sees_nothing_is_led_to_those_who_do(served: Served, browser: Browser, path: str) -> None:
    """Only an empty memory says how to connect an agent; any other names whom one may ask as."""
    assert "ask as" not in text_of((await browser.client.get(path)).text).lower().partition("nothing")[2]
    await served.call("append_event", event("k", text="the kiln is hot", participants=["ada", "bob"]))
    page = await browser.client.get(path)
    assert "mcpServers" not in page.text
    link = next(
        a["href"] or "" for tag, a in elements(page.text.partition("Nothing ")[2]) if "as=ada" in (a.get("href") or "")
    )
    assert "kiln is hot" in (await browser.client.get(link)).text


async def test_unknown_ids_are_pages(browser: Browser) -> None:
    """Events and topics that are not there, or not visible, say so."""
    for path in ("/console/events/evt_nobody", "/console/topics/top_nobody"):
        page = await browser.get(path, **{"as": "user_42"})
        assert page.status_code == 404
        assert "not_found" in text_of(page.text)


class TestSwitch:
    """The console is served where a setting says so."""

    @pytest.fixture
    def settings(self) -> Settings:
        """The defaults."""
        return Settings()

    async def test_it_is_off_by_default(self, browser: Browser) -> None:
        """A server that nothing told otherwise has no console."""
        assert (await browser.get("/console/ask")).status_code == 404


async def test_topics_are_listed_for_those_who_see_them(served: Served, browser: Browser, database: Database) -> None:
    """The overview shows a tree for each group of participants that the visitor belongs to, and no other."""
    for who in ("ada", "bob"):
        talk = [event(f"{who}{n}", text=f"{who} paints the boat in colour {n}", participants=[who]) for n in range(6)]
        await served.call("append_events", {"events": talk})
    assert "No snapshot is built yet" in text_of((await browser.get("/console/topics", **{"as": "ada"})).text)
    await builds.build(database)
    for view in ("subject", "time"):
        said = text_of((await browser.get("/console/topics", view=view, **{"as": "ada"})).text)
        assert "6 events" in said
        assert "bob" not in said
    assert "No topic is visible" in text_of((await browser.get("/console/topics", **{"as": "eve"})).text)


async def test_topics_come_in_pages(served: Served, browser: Browser, database: Database) -> None:
    """Many groups of participants are on several pages, each on one."""
    people = [f"friend{n:02}" for n in range(13)]
    events = [event(who, text=f"tea with {who}", participants=["ada", who]) for who in people]
    await served.call("append_events", {"events": events})
    await builds.build(database)
    seen: list[str] = []
    page = await browser.get("/console/topics", **{"as": "ada"})
    while True:
        seen += [who for who in people if f"ada , {who}" in text_of(page.text)]
        more = [a["href"] for _, a in elements(page.text) if "after=" in (a.get("href") or "")]
        if not more:
            break
        page = await browser.get(more[0] or "")
    assert sorted(seen) == people


async def test_a_note_is_found_opened_and_forgotten(served: Served, browser: Browser, memory: Memory) -> None:
    """A note's page shows its versions; forgetting shows first what goes, and spares what is protected."""
    sent = headers("remember")
    kept = await served.post(call("remember", {"content": "Rosa prefers tea to coffee"}), sent, path="/mcp/agent")
    note_id = kept.json()["result"]["structuredContent"]["id"]
    listed = await browser.get("/console/notes", q="tea")
    assert note_id in listed.text
    confirm = await browser.get(f"/console/notes/{note_id}/forget")
    assert "protected" in text_of(confirm.text)
    assert (await browser.get(f"/console/notes/{note_id}")).status_code == 200
    done = await browser.submit(confirm, f"/console/notes/{note_id}/forget", {"force": "on"})
    assert "Forgotten" in text_of(done.text)
    left = text_of((await browser.get("/console/notes", q="tea")).text)
    assert "Rosa prefers tea" not in left
    assert note_id in left.partition("Forgotten lately")[2]


async def test_people_are_those_one_shares_something_with(served: Served, browser: Browser) -> None:
    """Somebody who looks as one person is shown whoever shares an event with that person, and nobody else."""
    for pair in (["ada", "bob"], ["ada", "cora/dora"], ["eve", "mallory"]):
        await served.call("append_event", event(pair[1], text=f"tea with {pair[1]}", participants=pair))
    said = text_of((await browser.get("/console/people", **{"as": "ada"})).text)
    assert "bob" in said
    assert "cora/dora" in said
    assert "mallory" not in said
    assert "mallory" in text_of((await browser.get("/console/people")).text)
    assert "tea with cora/dora" in text_of((await browser.get("/console/people/one", name="cora/dora")).text)


async def test_an_erasure_counts_before_it_erases(served: Served, browser: Browser, database: Database) -> None:
    """The page shows what goes; the form erases exactly these events, or says that there are others by now.

    Once it is done, its receipt can be saved.
    """
    for number in range(3):
        await served.call("append_event", event(str(number), text=f"secret {number}", participants=["ada"]))
    confirm = await browser.get("/console/people/erase", name="ada")
    assert "Erase 3 events for good" in text_of(confirm.text)
    assert "secret 2" in text_of(confirm.text)  # so one sees what goes
    await served.call("append_event", event("more", text="one more", participants=["ada"]))
    mistyped = await browser.submit(confirm, "/console/people/erase", {"reason": "asked to", "confirmed": "eda"})
    assert "nothing was erased" in text_of(mistyped.text)
    late = await browser.submit(confirm, "/console/people/erase", {"reason": "asked to", "confirmed": "ada"})
    assert late.status_code == 409
    confirm = await browser.get("/console/people/erase", name="ada")
    done = await browser.submit(confirm, "/console/people/erase", {"reason": "asked to", "confirmed": "ada"})
    assert done.url.path.startswith("/console/erasures/")
    assert "4 of 4 events" in text_of(done.text)
    again = await browser.submit(confirm, "/console/people/erase", {"reason": "asked to", "confirmed": "ada"})
    assert again.url == done.url
    assert "secret" not in text_of((await browser.get("/console/ask", **{"as": "ada"})).text)
    path = f"{done.url.path}/receipt"
    build = await browser.get("/console/changes/build")
    token = {"form_token": build.text.partition('name="form_token" value="')[2].partition('"')[0]}
    early = await browser.client.post(path, data=token, headers={"sec-fetch-site": "same-origin"})
    assert "is not done" in text_of(early.text)
    async with Pool(database.operator_dsn) as control:
        registry, log = Registry(control, Settings()), event_log(control)
        carrier = ErasureCarrier(control, registry, log, Settings().erasure, unproved=True)
        await carrier.look()
        await carrier.settle()
    assert (await browser.client.get(path)).status_code == 405  # a link would begin to use the key up
    listed = await browser.get("/console/people/erase")
    assert "4 events done by mcp : asked to" in text_of(listed.text)
    for lead in (listed.text, (await browser.get("/console/operations")).text):
        links = [a.get("href") or "" for tag, a in elements(lead) if tag == "a"]
        assert {done.url.path, "/console/people/erase"} & set(links)  # so a lost tab loses no receipt
    saved = await browser.submit(await browser.get(done.url.path), path)
    assert "attachment" in saved.headers["content-disposition"]
    assert saved.json()["receipt"]["erasure_id"] == done.url.path.rpartition("/")[2]
    for page in ("/console/people", "/console/ask"):  # nobody is offered of whom nothing is visible
        assert "ada" not in (await browser.get(page)).text.partition("<main")[2], page


async def test_an_answer_says_why(served: Served, browser: Browser) -> None:
    """The shares of a match stand beside it, and an event that was expected has its place or its stage."""
    texts = ["the kiln opens on Friday", "the kiln is red", "the boat is blue"]
    days = ("2026-03-01T10:00:00Z", "2026-03-09T10:00:00Z", "2026-03-17T10:00:00Z")  # no neighbours of each other
    events = [event(text, text=text, timestamp=day) for text, day in zip(texts, days, strict=True)]
    stored = await served.call("append_events", {"events": events})
    ids = [result["event_id"] for result in stored.content["results"]]
    page = await browser.get("/console/ask", q="when does the kiln open?", why="on", **{"as": "user_42"})
    assert "words of the question" in text_of(page.text)
    assert "The best score" in text_of(page.text)
    read = await browser.get("/console/ask", q="kiln", why="on", view="text", expected=ids[0], **{"as": "user_42"})
    said = text_of(read.text).partition("Why these lines")[2]
    assert "The best score" in said
    assert said.index("the kiln opens on Friday") < said.index("the kiln is red") < said.index("% of the best score")
    for expected, said in (
        (ids[0], "It is shown. Its place is 1"),
        (ids[2], "Neither its words nor its meaning match the question."),
        ("evt_nobody", "Nothing of that id is visible"),
    ):
        page = await browser.get("/console/ask", q="when does the kiln open?", expected=expected, **{"as": "user_42"})
        assert said in text_of(page.text)
    for filters, named in (
        ({"types": "none"}, "types"),
        ({"channel": "none", "until": days[0]}, "channel, until"),
        ({"context": "none", "since": days[1]}, "conversation, from"),
    ):
        page = await browser.get("/console/ask", q="kiln", expected=ids[0], **filters, **{"as": "user_42"})
        assert f"A filter excludes it: {named}." in text_of(page.text)


async def test_a_missed_note_is_the_event_of_its_current_version(served: Served, browser: Browser) -> None:
    """By its id and by its handle, as it stands in texts for models; a note of others is as one that is not there."""
    kept = await served.post(call("remember", {"content": "the kiln is red"}), headers("remember"), path="/mcp/agent")
    note_id = kept.json()["result"]["structuredContent"]["id"]
    await served.post(
        call("amend", {"id": note_id, "content": "the kiln is blue"}), headers("amend"), path="/mcp/agent"
    )
    recalled = (await served.post(call("recall", {"text": "kiln"}), headers("recall"), path="/mcp/agent")).text
    [handle] = re.findall(r"n:[0-9]{9}", recalled)[:1]
    for expected in (note_id, handle, f"[{handle}]"):
        page = await browser.get("/console/ask", q="kiln", expected=expected)
        assert f'href="/console/notes/{note_id}">note</a>' in page.text
        assert "It is shown. Its place is 1" in text_of(page.text), expected
    for missing in (note_id, "n:999999999", "e:" + 21 * "9", "n:" + 21 * "9"):
        page = await browser.get("/console/ask", q="kiln", expected=missing, **{"as": "somebody"})
        assert "Nothing of that id is visible" in text_of(page.text), missing


async def test_a_missed_event_keeps_its_place_on_every_page(served: Served, browser: Browser) -> None:
    """It is on a later page, on this one, or was on an earlier one, with a link; and it may be too large for any."""
    talk = [event(f"k{n}", text=f"the kiln opens at {n}") for n in range(45)]
    await served.call("append_events", {"events": talk})
    ranked = await served.call("query_event_nodes", {"participants": ["user_42"], "query": "kiln", "limit": 50})
    order = [node["event_id"] for node in ranked.content["root"]["children"]]
    asked = {"q": "kiln", "expected": order[24], "as": "user_42"}
    page, said = await browser.get("/console/ask", **asked), []
    while True:
        card = page.text.partition("What you miss:</strong>")[2].partition("</div>")[0]
        assert "Its place is 25." in text_of(card)
        assert "What raised or lowered it" in card
        said.append(text_of(card).partition(" Its place")[0])
        onward = [a.get("href") or "" for tag, a in elements(page.text) if "cursor=" in (a.get("href") or "")]
        if not onward:
            break
        assert (len(said) == 1) == ("Next page" in card)
        page = await browser.get(onward[0])
    assert said == [
        "It is on a later page: what stands before it fills this one.",
        "It is shown.",
        "It was shown on an earlier page.",
    ]
    assert ">First page</a>" in card
    text = await browser.get("/console/ask", view="text", tokens="20", **{**asked, "expected": order[0]})
    assert "It alone is larger than the answer may be" in text_of(text.text)


async def test_numbers_of_an_answer_say_what_they_count(served: Served, browser: Browser, database: Database) -> None:
    """Matches that are shown, whether more follow, from when the snapshot is, and what came since."""
    talk = [event(f"k{n}", text=f"the kiln opens at {n}") for n in range(25)]
    await served.call("append_events", {"events": talk})
    searched = text_of((await browser.get("/console/ask", q="kiln", **{"as": "user_42"})).text)
    assert "20 matches shown, best first; there are more. No snapshot is built yet" in searched
    snapshot = (await builds.build(database)).snapshot_id
    await served.call("append_event", event("late", text="the kiln opens at noon"))
    page = await browser.get("/console/ask", q="kiln noon", **{"as": "user_42"})
    assert "1 newer event is not in it yet, but found: 1 shown here." in text_of(page.text)
    place = next(a["href"] or "" for _, a in elements(page.text) if a.get("title") == snapshot)
    assert str(snapshot) in (await browser.get(place)).text
    made = re.findall("From snapshot 1 of (.*? UTC)", text_of(page.text))
    assert made == re.findall("Snapshot 1 active (.*? UTC)", text_of((await browser.get("/console/changes")).text))
    assert "not in the snapshot yet" in text_of(page.text)
    more = next(a["href"] for _, a in elements(page.text) if "cursor=" in (a.get("href") or ""))
    assert "6 more matches shown, best first. From snapshot 1 of" in text_of((await browser.get(more or "")).text)
    newest = text_of((await browser.get("/console/ask", channel="telegram", **{"as": "user_42"})).text)
    assert "20 events shown, newest first; there are more." in newest


async def test_what_was_replaced_is_not_said_to_be_newer(served: Served, browser: Browser, database: Database) -> None:
    """Of an event that its snapshot lacks, an answer says why: it was replaced, is internal, or came since."""
    old = await served.call("append_event", event("old", text="the kiln opens on Friday"))
    supersedes = [old.content["event_id"]]
    await served.call("append_event", {**event("new", text="the kiln opens on Monday"), "supersedes": supersedes})
    await served.call("append_event", {**event("secret", text="the kiln was looked up"), "internal": True})
    await builds.build(database)
    asked = {"q": "kiln", "superseded": "on", "internal": "on", "as": "user_42"}
    for view in ("best", "topics"):
        shown = text_of((await browser.get("/console/ask", view=view, **asked)).text).partition("Answer ")[2]
        assert "; 2 shown here are in no snapshot, being replaced or internal." in shown
        assert "replaced by a later event , so not in the snapshot" in shown
        assert "internal, so in no snapshot" in shown
        assert "yet" not in shown
        assert "newer" not in shown
    await served.call("append_event", event("late", text="the kiln opens at noon"))
    shown = text_of((await browser.get("/console/ask", **asked)).text)
    assert "1 newer event is not in it yet, but found: 1 shown here; 2 shown here are in no snapshot" in shown


@pytest.mark.parametrize(
    ("points", "percents"),
    [
        ({"words": 1, "meaning": 1, "time": 1}, [34, 33, 33]),
        ({"words": 700, "meaning": 400, "wording": -100}, [70, 40, -10]),
        ({"words": 99_999, "meaning": 1}, [100, 0]),
        ({"wording": -5}, [0]),
        ({}, []),
    ],
)
def test_shares_of_a_score_add_up(points: dict[str, int], percents: list[int]) -> None:
    """In whole percent they come to 100, the largest first; of a score that is not positive there are none."""
    shares = in_percent(points)
    assert [percent for _, _, percent in shares] == percents
    assert {name: part for name, part, _ in shares} == points


async def test_names_together_see_what_all_of_them_may(served: Served, browser: Browser) -> None:
    """The fields and sentences of names say that each further name leaves less to see, not more."""
    for people in (["ada"], ["ada", "bob"]):
        await served.call("append_event", event(str(people), text=f"tea for {len(people)}", participants=people))
    alone = text_of((await browser.get("/console/ask", **{"as": "ada"})).text)
    assert "together with" in alone
    assert "With a second name, a page shows only what both may see." in alone
    assert "tea for 1" in alone
    for path in ("/console/ask", "/console/topics", "/console/people"):
        said = text_of((await browser.get(path + "?as=ada&as=bob")).text)
        assert "This page shows only what all of them may see." in said
        assert "tea for 1" not in said
    assert "1 event that ada and bob both may see" in text_of(
        (await browser.get("/console/topics?as=ada&as=bob&view=timeline")).text
    )


@pytest.mark.parametrize("path", ["ask?as=ada", "topics", "notes", "people", "changes"])
async def test_an_empty_memory_says_how_to_fill_it(served: Served, browser: Browser, path: str) -> None:
    """Each page with nothing to show has the lines that connect an agent; once there is something they are gone."""
    lines = f'"url": "{str(served.client.base_url).rstrip("/")}/mcp/agent"'
    assert lines in text_of((await browser.get(f"/console/{path}")).text)
    await served.call("append_event", event("k", participants=["ada", "bob"]))
    if path != "notes":
        assert lines not in text_of((await browser.get(f"/console/{path}")).text)


async def test_the_part_that_answers_has_its_own_heading(served: Served, browser: Browser) -> None:
    """Where a script puts an answer in place, no heading of before stays above it, and the page gets its title."""
    await served.call("append_event", event("k", text="the kiln opens on Friday"))
    parameters = {"q": "kiln", "as": "user_42"}
    part = await browser.client.get("/console/ask", params=parameters, headers={"hx-target": "answer"})
    assert text_of(part.text).startswith("kiln · Myria Answer")
    newest = await browser.client.get("/console/ask", params={"as": "user_42"}, headers={"hx-target": "answer"})
    assert text_of(newest.text).startswith("Ask · Myria Newest")


async def test_an_answer_may_be_of_some_types_and_of_internal_events(served: Served, browser: Browser) -> None:
    """A question may ask for events of some types alone, and for those that are internal."""
    for number, (kind, is_internal) in enumerate((("message", False), ("tool_result", False), ("trace", True))):
        made = {**event(f"k{number}", text=f"the kiln is {kind}"), "type": kind, "internal": is_internal}
        assert not (await served.call("append_event", made)).is_error
    asked = {"q": "kiln", "as": "user_42"}
    for fields, found in (
        ({}, {"message", "tool_result"}),
        ({"types": "tool_result"}, {"tool_result"}),
        ({"types": " message , trace ", "internal": "on"}, {"message", "trace"}),
    ):
        said = text_of((await browser.get("/console/ask", **asked, **fields)).text)
        assert {kind for kind in ("message", "tool_result", "trace") if f"the kiln is {kind}" in said} == found
