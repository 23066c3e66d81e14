"""The page of the console that an address names: where to go on to, and never anywhere else."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.datastructures import URL
from starlette.requests import Request

from myria_server.paths import CONSOLE_PREFIX as PREFIX


def page_of(request: Request) -> str:
    """Return the page that a browser shows: for a part of a page, and for a form, not what was asked for just now."""
    shown = request.headers.get("hx-current-url") or (
        request.headers.get("referer") if request.method == "POST" else None
    )
    return local_page(str(request.url) if shown is None else shown)


def local_page(address: str) -> str:
    """Return the page of the console that an address names, whatever its host; the first one for any other address."""
    try:
        url = URL(address)
        return place_of(url.path + (f"?{url.query}" if url.query else ""))
    except ValueError:  # a browser sends no such header
        return PREFIX + "/"


def place_of(text: str | None) -> str:
    """Return the page of the console to go on to; the first one for an address of anything else."""
    # Browsers read a backslash as a slash, and resolve dots, also escaped ones.
    path = unquote((text or "").partition("?")[0])
    if text is None or not path.startswith(PREFIX + "/") or ".." in path or "\\" in text or not text.isprintable():
        return PREFIX + "/"
    return text
