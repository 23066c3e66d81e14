"""The pages of the console, each at an address that shows much, and a memory for them to show.

A new page is a line in `PAGES`; one that changes by itself while it is open is a line in `LIVE`, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

PAGES: Mapping[str, str] = {
    "ask": "/ask?as={who}",
    "ask: best matches": "/ask?as={who}&q={question}",
    "ask: why": "/ask?as={who}&q={question}&why=on&expected={event}",
    "ask: by topic": "/ask?as={who}&q={question}&view=topics&why=on",
    "ask: text for a model": "/ask?as={who}&q={question}&view=text&tokens=20000&why=on&expected={event}",
    "ask: long texts": "/ask?as={archivist}",
    "ask: long texts by topic": "/ask?as={archivist}&view=topics",
    "event": "/events/{event}?as={who}",
    "event: long text": "/events/{long_event}?as={archivist}",
    "event: forget": "/events/{event}/forget?as={who}",
    "topics": "/topics?as={who}",
    "topics: by time": "/topics?as={who}&view=time",
    "topics: timeline": "/topics?as={who}&view=timeline",
    "topic": "/topics/{topic}?as={who}",
    "notes": "/notes?as={archivist}",
    "notes: found": "/notes?as={archivist}&q={question}",
    "note": "/notes/{note}?as={archivist}",
    "note: add": "/notes/new?as={archivist}",
    "note: correct": "/notes/{note}/correct?as={archivist}",
    "note: forget": "/notes/{note}/forget?as={archivist}",
    "people": "/people?as={who}",
    "person": "/people/one?as={who}&name={who}",
    "person: long texts": "/people/one?as={archivist}&name={archivist}",
    "person: erase": "/people/erase?as={who}&name={who}&shared=remove",
    "review": "/review",
    "changes": "/changes",
    "changes: give up": "/changes/abort?build={build}",
    "changes: one build": "/changes/builds/{build}",
    "changes: build": "/changes/build",
    "changes: roll back": "/changes/rollback?snapshot={before}",
    "changes: differences": "/changes/diff?from={before}&to={after}",
    "operations": "/operations",
    "settings": "/settings",
    "audit": "/audit",
    "keys": "/keys",
    "keys: programs": "/keys/grants",
    "no such page": "/nowhere",
}
"""The address of each page below the console's; `{name}` stands for a field of `Shown`."""

LIVE: Mapping[str, str] = {
    "changes": "/changes",
    "roll back": "/changes/rollback?snapshot={before}",
}
"""Pages that ask the server again while they are open."""

_LOADED = re.compile(r'(?:src|href|data-htmx)="(/console/static/[^"]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the addresses name: `who` is in very many events, `archivist` in few with the longest texts.

    Attributes:
        event: an event of `who`; `long_event` is one of `archivist`.
        before, after: two snapshots, an older and a newer one.
    """

    who: str
    archivist: str
    question: str
    event: str
    long_event: str
    topic: str
    note: str
    before: str
    after: str
    build: str

    def address(self, page: str) -> str:
        """Return the address of a page with what it names."""
        names = {name: quote(getattr(self, name), safe="") for name in self.__slots__}
        return "/console" + page.format_map(names)


def first_link(html: str, below: str) -> str:
    """Return the id in the first link of a page to an address below another one; `/notes/new` has none."""
    found = re.search(rf'href="/console/{below}/([a-z]+_[^"?]+)', html)
    return found[1] if found else ""


def loaded_by(html: str) -> list[str]:
    """Return the addresses of the scripts, styles and pictures that a page loads."""
    return list(dict.fromkeys(_LOADED.findall(html)))
