"""The page of consent as a person's browser sees it."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx


class Form(HTMLParser):
    """What a browser sees of a page: the fields that its form sends by itself, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note an element, and the fields that the form sends by itself."""
        named = dict(attributes)
        self.tags.append((tag, named))
        if tag == "input" and named.get("type") == "hidden":
            self.fields[str(named["name"])] = str(named["value"])


async def press(client: httpx.AsyncClient, url: str, key: str, decision: str = "allow") -> httpx.Response:
    """Open the page at `url`, type a key and press a button; return what the browser gets for it."""
    page = await client.get(url)
    assert page.status_code == 200, page.text
    fields = {**Form(page.text).fields, "key": key, "decision": decision}
    return await client.post(page.url.join("authorize"), data=fields)
