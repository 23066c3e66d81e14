"""A form in which a field is refused is shown again: with what was typed, and why beside the field, in plain words."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.access.store import AccessStore
from myria.settings import Settings
from myria_server.console.fields import browser_moment, moment_of
from tests.console.conftest import LOCAL, WITH_KEYS, Browser, elements, text_of
from tests.server.wire import Served, event
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

LONG = "x" * 300
TOOL_WORDS = re.compile(r"max_tokens|participants\[|\bas\[|own\[|--|context_id|types\[")


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Keys may be made."""
    async with access_store(database) as opened:
        yield opened


def refused_field(page: httpx.Response) -> tuple[str, str, str]:
    """Return the field that a page marks as refused, its value, and what the page says beside it."""
    assert 400 <= page.status_code < 500, page.status_code
    [(tag, field)] = [(tag, a) for tag, a in elements(page.text) if a.get("aria-invalid") == "true"]
    described_by = (field["aria-describedby"] or "").split()[0]
    assert "autofocus" in field
    assert page.text.count(" autofocus") == 1
    beside = page.text.partition(f'role="alert" id="{described_by}"')[2].partition("</p>")[0]
    said = text_of(f"<p{beside}")
    assert not TOOL_WORDS.search(said), said
    value = field.get("value") or ""
    if tag == "textarea":
        value = page.text.partition(f'id="{field["id"]}"')[2].partition(">")[2].partition("</textarea>")[0]
    return field["name"] or "", value, said


@pytest.mark.parametrize(
    ("sent", "kept", "said"),
    [
        (b"x" * 1_000_000, "x" * 2_000, "Why is too long: a form takes 256 KiB. Its beginning is kept."),
        (b"before+%ED%A0%80+after", "before \ufffd\ufffd\ufffd after", "Why holds bytes that are no text in UTF-8."),
        (b"\xff", "\ufffd", "Why holds bytes that are no text in UTF-8."),
    ],
)
async def test_a_form_that_cannot_be_read_says_why_and_keeps_what_can(
    browser: Browser, sent: bytes, kept: str, said: str
) -> None:
    """Nothing is done, and nobody is told that it came from elsewhere; from elsewhere, nothing is told."""
    page = await browser.get("/console/changes/build")
    token = page.text.partition('name="form_token" value="')[2].partition('"')[0].encode()
    headers = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
    body = b"form_token=" + token + b"&reason=" + sent
    refused = await browser.client.post("/console/changes/build", content=body, headers=headers)
    assert refused_field(refused)[:2] == ("reason", kept)
    assert said in refused_field(refused)[2]
    foreign = {**headers, "sec-fetch-site": "cross-site"}
    assert (await browser.client.post("/console/changes/build", content=body, headers=foreign)).status_code == 403
    assert "and none was asked for" in text_of((await browser.get("/console/changes")).text)


@pytest.mark.parametrize(
    ("path", "field", "value", "said"),
    [
        ("/ask?view=text&q=tea", "tokens", "abc", "Tokens for a model must be a whole number"),
        ("/ask?view=text&q=tea", "tokens", "0", "Tokens for a model must be at least 1"),
        ("/ask?q=tea", "expected", "e:1", "Event or note that you miss is cut off or misspelt: nine digits"),
        (
            "/ask?q=tea&view=text",
            "expected",
            "[n:5]",
            "Event or note that you miss is cut off or misspelt: nine digits",
        ),
        ("/ask?q=tea&view=topics", "expected", "tea", "Event or note that you miss must be the id of an event or a"),
        ("/ask?q=tea", "since", "yesterday", "From must be an RFC 3339 timestamp"),
        ("/ask?q=tea", "until", "2026-13-01T00:00:00Z", "Until is not a real date and time"),
        ("/ask?q=tea", "channel", LONG, "Channel is longer than 200 characters"),
        ("/ask?q=tea", "context", LONG, "Conversation is longer than 200 characters"),
        ("/ask?q=tea", "types", LONG, "Types is longer than 200 characters"),
        ("/ask?q=tea", "as", LONG, "Ask as is longer than 200 characters"),
        ("/notes?q=tea", "topic", LONG, "Subject is longer than 200 characters"),
        ("/notes?q=tea", "as", LONG, "Person or agent is longer than 200 characters"),
        ("/topics?view=subject", "as", LONG, "Ask as is longer than 200 characters"),
        ("/people?q=tea", "as", LONG, "Ask as is longer than 200 characters"),
        ("/people/erase", "name", LONG, "Name is longer than 200 characters"),
        ("/review?kind=decision", "participant", LONG, "Person or agent is longer than 200 characters"),
    ],
)
async def test_a_refused_field_of_a_page_keeps_its_form(
    browser: Browser, path: str, field: str, value: str, said: str
) -> None:
    """What else was filled in stays, too; the status is still that of a refusal, and its code is named."""
    page = await browser.client.get(httpx.URL(f"/console{path}").copy_merge_params({field: value}))
    name, shown, beside = refused_field(page)
    assert (name, shown) == (field, value)
    assert beside.startswith(said)
    assert "Code: invalid_" in beside
    if "q=tea" in path:
        assert 'name="q" value="tea"' in page.text


class TestKeys:
    """The forms of an administrator."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Callers need a key."""
        return WITH_KEYS

    async def test_a_key_that_is_refused_is_not_typed_again(
        self, served: Served, browser: Browser, store: AccessStore
    ) -> None:
        """Make a key, and Audit, keep what was filled in, down to each box that was ticked."""
        await browser.sign_in(
            await make_key(store, "ada", roles=("read", "append", "admin"), faces=("core", "agent", "admin"))
        )
        form = await browser.get("/console/keys/new")
        filled = {"name": "for the night", "own": f"ada\n{LONG}", "may_ask": "", "role_read": "on", "api_agent": "on"}
        filled |= {"lifetime": "a week", "reason": "asked for"}
        page = await browser.submit(form, "/console/keys/new", filled)
        name, shown, said = refused_field(page)
        assert (name, shown) == ("own", f"ada\n{LONG}")
        assert said.startswith("Asks as is longer than 200 characters")
        fields = {a.get("name"): a for tag, a in elements(page.text) if tag == "input"}
        assert fields["name"]["value"] == "for the night"
        assert fields["reason"]["value"] == "asked for"
        ticked = {field for field, a in fields.items() if "checked" in a}
        assert ticked == {"role_read", "api_agent"}
        assert "<option selected>a week" in page.text
        for changed, field, said in (
            ({"own": ""}, "own", "Asks as: a key that appends or reads must speak for somebody"),
            ({"own": "ada", "may_ask": "a**"}, "may_ask", "May ask as others, too may hold one '*'"),
            ({"own": "ada", "name": "y" * 200}, "name", "Name must have 1..100 characters"),
            ({"own": "eve"}, "own", "Asks as: Your key gives nobody more than it has itself"),
            ({"own": "ada", "reason": "y" * 600}, "reason", "Why"),
        ):
            name, _, beside = refused_field(await browser.submit(form, "/console/keys/new", filled | changed))
            assert (name, beside.startswith(said)) == (field, True), beside
        made = await browser.submit(page, "/console/keys/new", filled | {"own": "ada"})
        assert "Key made" in text_of(made.text)
        for path in ("/console/audit", "/console/audit.jsonl"):
            audit = await browser.get(path, since="yesterday", q="tea")
            assert refused_field(audit)[:2] == ("since", "yesterday")
            assert 'name="q" value="tea"' in audit.text


async def test_what_an_act_is_sent_with_stays(served: Served, browser: Browser) -> None:
    """A mistyped name before an erasure, and the id of a note that is none, are said beside their fields."""
    await served.call("append_event", event("k", text="secret", participants=["ada"]))
    await served.call("append_event", event("shared", text="secret", participants=["ben", "cy"]))
    for address in ({"name": "ada"}, {"name": "ben", "shared": "remove"}):
        confirm = await browser.get("/console/people/erase", **address)
        page = await browser.submit(confirm, "/console/people/erase", {"reason": "asked to", "confirmed": "eda"})
        name, shown, said = refused_field(page)
        assert (name, shown) == ("confirmed", "eda")
        assert "nothing was erased" in said
        assert 'name="reason" value="asked to"' in page.text
        assert "Erase 1 event for good" in text_of(page.text)
    done = await browser.submit(page, "/console/people/erase", {"reason": "asked to", "confirmed": "ben"})
    assert done.url.path.startswith("/console/erasures/")
    notes = await browser.get("/console/notes", q="tea", kind="fact", topic="drinks", superseded="on")
    page = await browser.submit(notes, "/console/notes/restore", {"note": "note_none"})
    name, shown, said = refused_field(page)
    assert (name, shown) == ("note", "note_none")
    assert "note_not_found" in said
    fields = {a.get("name"): a for _, a in elements(page.text)}
    assert (fields["q"]["value"], fields["topic"]["value"]) == ("tea", "drinks")
    assert "checked" in fields["superseded"]
    assert '<option value="fact" selected>' in page.text


async def test_what_is_typed_is_text(browser: Browser) -> None:
    """A form that is shown again makes no element of what was typed."""
    page = await browser.get("/console/ask", q="<img src=x>", tokens='"><script>alert(1)</script>', view="text")
    assert refused_field(page)[1] == '"><script>alert(1)</script>'
    assert not [tag for tag, a in elements(page.text) if tag == "img" or (tag == "script" and not a.get("src"))]


@given(
    st.integers(-62_135_500_000_000_000, 253_402_200_000_000_000),
    st.sampled_from(["+00:00", "+05:30", "-11:00"]),
)
def test_a_browser_takes_a_moment_that_is_not_narrower(microseconds: int, zone: str) -> None:
    """At most milliseconds, in UTC: a time begins no later than was asked for, and ends no earlier."""
    offset = datetime.fromisoformat(f"2026-01-01T00:00:00{zone}").tzinfo
    asked = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).astimezone(offset)
    for is_end in (False, True):
        shown = browser_moment(asked.isoformat(), is_end=is_end) or ""
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?", shown)
        sent = datetime.fromisoformat(moment_of(shown))
        assert abs(sent - asked) < timedelta(milliseconds=1)
        assert sent >= asked if is_end else sent <= asked


async def test_filters_of_a_link_stay_in_the_form(served: Served, browser: Browser) -> None:
    """From an event of microseconds, Earlier and Later lead to a form that finds at least as much when it is sent."""
    events = [
        event(str(n), text=f"tea {n}", timestamp=f"2026-03-01T10:00:{n:02}.26123{n % 10}Z", context_id="talk")
        for n in range(15)
    ]
    results = (await served.call("append_events", {"events": events})).content["results"]
    page = await browser.get(f"/console/events/{results[7]['event_id']}", **{"as": "user_42"})
    for name in ("until", "since"):
        link = next(
            a["href"] or "" for tag, a in elements(page.text) if tag == "a" and f"{name}=" in (a.get("href") or "")
        )
        found = await browser.get(link)
        [field] = [a for tag, a in elements(found.text) if tag == "input" and a.get("name") == name]
        assert (field["type"], field["step"]) == ("datetime-local", "any")
        assert re.fullmatch(r"2026-03-01T10:00:07\.26[12]", field["value"] or "")
        shown = set(re.findall(r"tea \d+", found.text))
        again = await browser.get(link.replace(quote("2026-03-01T10:00:07.261237Z"), field["value"] or ""))
        assert shown <= set(re.findall(r"tea \d+", again.text))
        assert len(shown) in (7, 8)


def test_every_form_that_acts_waits_while_the_server_is_away() -> None:
    """Scripts send it, so that no page of the browser's own takes its place, and it can be sent again.

    The browser itself sends what is answered with a file to save.
    """
    templates = resources.files("myria_server.console") / "templates"
    forms = [
        form
        for template in templates.iterdir()
        for form in re.findall(r"<form[^>]*", template.read_text())
        if 'method="post"' in form
    ]
    assert len(forms) > 10
    assert all('hx-boost="true"' in form or "/receipt'" in form for form in forms)


@pytest.fixture
def settings() -> Settings:
    """Nobody is asked for a key."""
    return LOCAL
