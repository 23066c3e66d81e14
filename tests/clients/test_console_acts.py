"""Every act of the console in a real browser, by keyboard alone, with scripts and without, by somebody signed in."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.synthetic import events as synthetic
from myria.db.database import Database as Pool
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.settings import AuthSettings, ConsoleSettings, Settings
from tests.clients.conftest import Outside, Talking
from tests.clients.test_console import chromium
from tests.server.test_erasing import carried_out
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.counts import SOAK, crossed
from tests.support.events import load
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

__all__ = ["chromium"]

PROGRAM = (Path(__file__).parent / "node" / "console_hands.mjs").read_text()
MANY = 100_000


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return Settings(console=ConsoleSettings(enabled=True), auth=AuthSettings(mode="keys"))


@dataclass
class Hands:
    """Somebody at a keyboard, with a browser."""

    talking: Talking
    scripts: bool
    text: str = ""
    address: str = ""
    focused: str = ""
    """The id or the address of what has the focus; empty where it has neither."""

    async def do(self, step: str, value: str = "") -> str | None:
        """Take one step; fail with what the page says where it cannot be taken."""
        await self.talking.say(json.dumps([step, value]))
        heard: dict[str, Any] = await self.talking.hear()
        assert "failed" not in heard, heard["failed"]
        assert not heard["complaints"], heard
        self.text, self.address, self.focused = heard["text"], heard["address"], heard["focused"]
        saved: str | None = heard["saved"]
        return saved

    async def open(self, path: str) -> None:
        """Write an address."""
        await self.do("open", path)

    async def write(self, selector: str, text: str) -> None:
        """Go to a field and write into it."""
        await self.do("to", selector)
        await self.do("type", text)

    async def go(self, selector: str, sees: str) -> None:
        """Go to a link or a button and press Enter; wait for what the next page says."""
        await self.do("to", selector)
        await self.do("go", "Enter")
        await self.do("sees", sees)

    @property
    def path(self) -> str:
        """Where the browser is."""
        return urlsplit(self.address).path


@asynccontextmanager
async def hands(outside: Outside, chromium: str, served: Served, *, scripts: bool) -> AsyncIterator[Hands]:
    """Start a browser with an empty page."""
    url = str(served.client.base_url).rstrip("/")
    arguments = ("--input-type=module", "--eval", PROGRAM, "--", chromium, url, json.dumps(scripts))
    async with outside.node_talking(*arguments) as talking:
        await talking.hear()
        yield Hands(talking, scripts)
        await talking.say('["end"]')


@dataclass
class Kept:
    """What there is to act on."""

    tenant: str
    key: str
    expected: str
    database: Database
    memory: Memory

    async def append(self, key: str, text: str, *people: str) -> str:
        """Append an event; return its id."""
        raw = event(key, text=text, participants=list(people), context_id="talk", channel="studio")
        [result] = await self.memory.log.append_events(self.tenant, [parse_event(raw, Limits())])
        return result.event_id

    async def carry_out_erasures(self) -> None:
        """Do what the control plane does."""
        async with Pool(self.database.operator_dsn) as control:
            await carried_out(control)

    async def build(self, *, hold: bool = False) -> str:
        """Build what is new; return the snapshot's id."""
        return (await builds.build(self.database, tenant=self.tenant, hold=hold)).snapshot_id or ""


async def _keep(memory: Memory, database: Database, tenant: str, many: int) -> Kept:
    """Keep a talk and a note, and so many events of others; build twice."""
    roles, faces = ("read", "append", "admin", "erase"), ("core", "agent", "admin")
    async with access_store(database, tenant) as store:
        key = await make_key(store, "ada", tenant=tenant, roles=roles, faces=faces)
    kept = Kept(tenant, key, "", database, memory)
    if many:
        await load(database.server_dsn, synthetic(many), tenant=tenant)
    kept.expected = await kept.append("k1", "The kiln opens on Friday", "ada", "bob")
    await kept.append("k2", "The glaze is red", "ada", "bob")
    await kept.append("b1", "Bob keeps a secret", "bob")
    draft = Draft(content="Rosa prefers tea to coffee", topic="drinks")
    await memory.notes.remember(tenant, ("ada",), draft, contract="memento")
    await kept.build()
    await kept.append("k3", "The boat is blue", "ada", "bob")
    await kept.build()
    return kept


@pytest.mark.soak
@pytest.mark.parametrize("many", [0, *([MANY] if SOAK else [])])
async def test_every_act_is_done_by_keyboard(
    outside: Outside, chromium: str, served: Served, database: Database, *, many: int
) -> None:
    """Somebody signs in, asks, follows an answer, corrects, forgets, erases, publishes, discards, rolls back, resumes,
    gives a build up, builds, reads and saves the audit, and signs out; with scripts or without, in a soak run both."""
    for tenant, scripts in (("default", True), ("other", False)):
        async with Memory(database.server_dsn, Settings()) as memory:
            kept = await _keep(memory, database, tenant, many)
            async with hands(outside, chromium, served, scripts=scripts) as person:
                await _sign_in(person, kept)
                await _use_single_keys(person)
                for act, with_scripts in crossed((_ask, _follow_and_forget, _change_and_audit), (True, False)):
                    if with_scripts == scripts:
                        await act(person, kept)
                await _sign_out(person)


async def _sign_in(person: Hands, kept: Kept) -> None:
    await person.open("/console/changes")
    assert person.path == "/console/sign-in"
    await person.write("#key", kept.key)
    await person.do("go", "Enter")
    assert person.path == "/console/changes"


async def _ask(person: Hands, kept: Kept) -> None:
    """Ask with every filter, and why an event has its place."""
    await person.go("header a[href^='/console/ask']", "Ask the memory")
    await person.write("#q", "when does the kiln open?")
    await person.do("to", "form summary >> nth=0")
    await person.do("press", "Enter")
    for field, day in (("#since", "01012026"), ("#until", "12312026")):
        await person.write(field, day)
        await person.do("press", "Tab")  # from the day to the hour
        await person.do("type", "1230PM")
    await person.write("#channel", "studio")
    await person.write("#context", "talk")
    await person.do("to", "#order")
    await person.do("press", "o")  # oldest first
    await person.do("to", "[name=superseded]")
    await person.do("press", "Space")
    await person.do("to", "form summary >> nth=1")
    await person.do("press", "Enter")
    await person.do("to", "[name=why]")
    await person.do("press", "Space")
    await person.write("#expected", kept.expected)
    await person.do("go", "Enter")
    await person.do("sees", "What you miss")
    assert "The kiln opens on Friday" in person.text
    assert "It is shown." in person.text
    # Without scripts a browser also sends the fields in which nothing was typed.
    assert not person.scripts or not re.search(r"=(&|$)", person.address)
    for field in ("since=2026-01-01", "until=2026-12-31", "channel=studio", "context=talk", "order=oldest", "why=on"):
        assert field in person.address
    await person.go("#answer nav a[href*='view=text']", "of 2\u202f000 tokens")
    await person.write("#tokens", "900")
    await person.do("go", "Enter")
    await person.do("sees", "of 900 tokens")


async def _use_single_keys(person: Hands) -> None:
    """Slash leads to the question, j and k lead along the answer, and all can be turned off; without scripts, the list
    of keys opens all the same."""
    if not person.scripts:
        await person.do("to", "footer button")
        await person.do("press", "Enter")
        await person.do("sees", "out of a field")
        assert "They need scripts." in person.text
        return
    await person.open("/console/topics")
    await person.do("go", "/")
    assert person.path == "/console/ask"
    await person.do("type", "what of the kiln / the glaze? jk")
    await person.do("go", "Enter")
    await person.do("sees", "The kiln opens on Friday")
    for key in ("Escape", "j", "j", "k"):
        await person.do("press", key)
    first = person.focused
    await person.do("press", "j")
    assert person.focused != first
    await person.do("press", "k")
    assert person.focused == first
    await person.do("press", "/")
    assert person.focused == "q"
    for key in ("Escape", "j", "Control+j"):
        await person.do("press", key)
    assert person.focused == first
    await person.do("go", "Enter")
    assert person.path == first.partition("?")[0]
    await person.do("press", "?")
    for key in ("Space", "Escape", "j", "?"):  # the choice has the focus first
        await person.do("press", key)
    assert not person.focused
    await person.go("header a[href^='/console/ask']", "Ask the memory")
    for key in ("Escape", "j"):
        await person.do("press", key)
    assert not person.focused
    await person.do("to", "footer button")
    for key in ("Enter", "Space", "Escape", "j"):
        await person.do("press", key)
    assert "/events/" in person.focused


async def _follow_and_forget(person: Hands, kept: Kept) -> None:
    await _follow(person)
    await _correct(person)
    await _forget_and_erase(person, kept)


async def _change_and_audit(person: Hands, kept: Kept) -> None:
    await _approve_and_take_back(person, kept)
    await _read_the_audit(person)


async def _follow(person: Hands) -> None:
    """From an answer to its event, topic, snapshot and note it is two clicks at most."""
    asked = "/console/ask?q=when+does+the+kiln+open"
    await person.open(asked)
    await person.go("#answer a[href*='/events/']", "Who may see it")
    await person.do("back")
    await person.go("#answer a[href*='view=topics']", "under 1 topic,")
    await person.go("#answer a[href*='/topics/']", "newest first")
    await person.open(asked)
    await person.go("#answer a[href*='/changes/builds/']", "What happened")
    await person.go("main a[href='/console/changes']", "History")
    await person.go("main a[href*='/changes/diff']", "What changed")
    await person.open("/console/ask?q=what+does+Rosa+prefer")
    await person.go("#answer a[href*='/events/']", "Who may see it")
    await person.go("main a[href*='/notes/']", "Rosa prefers tea to coffee")


async def _correct(person: Hands) -> None:
    """A note is corrected after a page that says what changes, and the old words are put back."""
    await person.go("main a[href*='/correct']", "Write what is true")
    await person.do("to", "#content")
    await person.do("press", "Control+A")
    await person.do("type", "Rosa prefers coffee to tea")
    await person.write("#reason", "she said so")
    await person.go("main form button.main", "It replaces version 1")
    await person.go("main form button.main", "Corrected.")
    assert "she said so" in person.text
    await person.go("main .notice button", "taken back")


async def _forget_and_erase(person: Hands, kept: Kept) -> None:
    """A note is forgotten, and a person erased, each after a page that says what goes."""
    await person.go("main a[href*='/forget']", "leaves every answer at once")
    if "protected" in person.text:
        await person.do("to", "[name=force]")
        await person.do("press", "Space")
    await person.go("main form button.main", "Forgotten")
    await person.open("/console/people/erase?name=bob")
    await person.write("#reason", "asked to")
    await person.write("#confirmed", "bob")
    await person.go("main button.danger", "Out of every answer")
    assert "0 of 1 event" in person.text
    await kept.carry_out_erasures()
    if person.scripts:
        await person.do("sees", "Save the receipt")  # the page that is open says by itself that it is done
    await person.open(person.path)
    assert "0 of 1 event" not in person.text
    assert "done" in person.text
    await person.open("/console/ask?q=secret")
    assert "Bob keeps a secret" not in person.text


async def _approve_and_take_back(person: Hands, kept: Kept) -> None:
    """Held snapshots are published and discarded; a rollback shows before what it changes; builds are resumed, one is
    given up, and one is asked for."""
    await kept.append("k4", "The shed is new", "ada", "bob")
    await kept.build(hold=True)
    await person.open("/console/changes")
    await person.go("main a[href*='/changes/publish']", "Publish a held snapshot")
    await _see_what_will_change(person)
    await person.write("#reason", "looks right")
    await person.go("main form button.main", "The snapshot was published")
    await kept.append("k5", "The shed is old", "ada", "bob")
    await kept.build(hold=True)
    await person.open("/console/changes")
    await person.go("main a[href*='/changes/discard']", "Discard a held snapshot")
    await person.go("main form button.main", "The snapshot was discarded")
    compared = person.text.partition("Compare two snapshots")[2].rpartition("Compare")[0]
    assert "active · " in compared
    assert ("UTC" in compared) != person.scripts  # with scripts it is in the reader's zone, as elsewhere
    await person.go("main a[href*='/changes/rollback']", "Roll back")
    await _see_what_will_change(person)
    await person.write("#reason", "labels went wrong")
    await person.go("main form button.main", "Rolled back")
    assert "labels went wrong" in person.text
    await person.go("main a[href*='/changes/resume']", "Resume automatic builds")
    await person.write("#reason", "labels are mended")
    await person.go("main form button.main", "Automatic builds are on again")
    await builds.queue(kept.database, tenant=kept.tenant)
    await person.open("/console/changes")
    await person.go("main a[href*='/changes/abort']", "Give up a build")
    assert "0 of 0 groups of people" in person.text
    await person.write("#reason", "wrong model")
    await person.go("main form button.main", "The build was given up")
    assert ": wrong model" in person.text
    await person.go("main a[href*='/changes/build']", "Build now")
    await person.write("#reason", "to see it")
    await person.go("main form button.main", "A build was requested")


async def _see_what_will_change(person: Hands) -> None:
    """The differences are on the page, or without scripts a link away."""
    if not person.scripts:
        await person.go("main a[href*='/changes/diff']", "What changed")
        assert " events" in person.text
        await person.do("back")
    else:
        await person.do("sees", " → ")  # from so many events of a topic to so many


async def _read_the_audit(person: Hands) -> None:
    """The entries that hold a text are found, and saved."""
    await person.go("header a[href^='/console/operations']", "Versions")
    await person.go("main a[href^='/console/audit']", "Who did what")
    await person.write("#q", "rollback")
    await person.do("go", "Enter")
    assert "labels went wrong" in person.text or "rollback" in person.text
    await person.do("to", "main a[href*='audit.jsonl']")
    saved = await person.do("save", "Enter")
    lines = [json.loads(line) for line in (saved or "").splitlines()]
    assert lines
    assert all("rollback" in json.dumps(line) for line in lines)


async def _sign_out(person: Hands) -> None:
    """After signing out, nothing of before is shown, also by going back."""
    await person.open("/console/ask?q=when+does+the+kiln+open")
    assert "The kiln opens on Friday" in person.text
    await person.go("header form button", "Your key")
    assert person.path == "/console/sign-in"
    await person.do("back")
    assert "kiln opens on Friday" not in person.text
    assert "Sign in" in person.text
