"""What the page of a refusal says: what happened, what to do, and where to go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.requests import Request

from myria.errors import CursorExpired, CursorInvalid, MyriaError
from myria_server.console.desk import ToolRefused
from myria_server.console.navigation import NavigationItem, section_of
from myria_server.console.rendering import query
from myria_server.paths import CONSOLE_PREFIX as PREFIX

FORM_REFUSED = "form_refused"
"""The code of a form that no page of the session sent."""

_OF_STATUS: Mapping[int, tuple[str, str]] = {
    403: (
        "You may not do this",
        "Your key lacks a right for it. Ask whoever gave you the key, or sign in with another one.",
    ),
    404: (
        "There is nothing here",
        "It may have been removed, or be hidden from those as whom you ask. Look for it on the page that lists it.",
    ),
    405: ("This page takes no such request", "Open it again, and repeat what you did."),
    409: ("It has changed meanwhile", "Nothing was done. Look at how it is now, then decide again."),
    429: ("Too many requests", "Nothing was done. Wait {wait}, then try again."),
    500: ("This is a fault of the server", "Its log has the details. Where it happens again, tell whoever runs it."),
    503: (
        "Not just now",
        "The server, or what it needs, does not answer in time. Wait {wait}, then try again. A form acts once, however "
        "often it is sent.",
    ),
}
"""A title, and what to do, by the status of the answer."""

_OTHERWISE = ("This does not work", "Nothing was done. Go back, change what you asked for, and try again.")

_BEGIN_AGAIN = "A long list can be continued for a while. Begin it again."
_OF_CODE: Mapping[str, tuple[str, str]] = {
    CursorExpired.code: ("This list has moved on", _BEGIN_AGAIN),
    CursorInvalid.code: ("This list cannot be continued", _BEGIN_AGAIN),
    FORM_REFUSED: ("This form cannot be sent", "Nothing was done. Open the page again, and repeat what you did."),
}
"""The same by the code of the refusal, where that says more."""

_PLACES = ("cursor", "before", "after", "begin")
"""Fields of an address that say where in a list a page begins."""

_WAIT_S = 5
"""Seconds to wait where the refusal does not say how long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A refusal as its page tells it.

    `leads`: texts and addresses of where to go on, the most useful first. `wait_s`: None where waiting does not help.
    """

    code: str
    message: str
    status: int
    title: str
    advice: str
    leads: Sequence[tuple[str, str]]
    wait_s: int | None


def problem_of(
    refusal: MyriaError | ToolRefused,
    request: Request,
    *,
    sections: Sequence[NavigationItem] = (),
    names: Sequence[str] = (),
    came_from: str | None = None,
) -> Problem:
    """Return what the page of a refusal says.

    Args:
        refusal: why.
        request: what was refused.
        sections: those that the visitor may open; none where nobody knows who it is.
        names: as whom the visitor asks, for links.
        came_from: the page of the console that led here, if any.
    """
    status, wait_s = refusal.http_status, None
    if status == 429 or status > 500:
        wait_s = max(1, int(refusal.details.get("retry_after_s", _WAIT_S)))
    title, advice = _OF_CODE.get(refusal.code) or _OF_STATUS.get(503 if status > 500 else status, _OTHERWISE)
    here = _address(request.url.path, request.query_params.multi_items())
    leads = []
    if request.method == "GET" and wait_s is not None:
        leads.append(("Try again", here))
    if refusal.code in {CursorExpired.code, CursorInvalid.code}:
        fields = [(name, value) for name, value in request.query_params.multi_items() if name not in _PLACES]
        leads.append(("From the beginning", _address(request.url.path, fields)))
    if came_from is not None and (came_from != here or request.method != "GET"):
        leads.append(("Back", came_from))
    if sections:
        section = section_of(request.url.path.removeprefix(PREFIX), sections) or sections[0]
        leads.append((f"Go to {section.name}", query(section.place, names)))
    elif not wait_s:
        leads.append(("Sign in", f"{PREFIX}/sign-in?next={quote(here, safe='')}"))
    return Problem(
        code=refusal.code,
        message=_sentence(refusal.message, str(refusal.details.get("field") or "")),
        status=status,
        title=title,
        advice=advice.format(wait="a second" if wait_s == 1 else f"{wait_s} seconds"),
        leads=[lead for place, lead in enumerate(leads) if lead[1] not in {address for _, address in leads[:place]}],
        wait_s=wait_s,
    )


def _sentence(message: str, field: str) -> str:
    """Return the message of an error as a sentence; a name of programs, with which it may begin, keeps its spelling."""
    is_name = "_" in message.partition(" ")[0] or (field and message.startswith(field))
    begin = message[:1] if is_name else message[:1].upper()
    return begin + message[1:] + ("" if message.endswith((".", "!", "?")) else ".")


def _address(path: str, fields: Sequence[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(fields)}" if fields else path
