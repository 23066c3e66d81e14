"""What a page says was done: once, right after the form that did it.

The address says what it was, and anybody may keep or send an address. So a form leaves a short-lived cookie that names
the address to which it leads, and the page there takes it away.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from myria_server.paths import CONSOLE_PREFIX as PREFIX

_COOKIE = "myria_console_done"
_WITHIN_S = 60
_SEE_OTHER = 303


def led_to(address: str) -> Response:
    """Return what leads a browser from a form that was carried out to the page that says so."""
    response = RedirectResponse(address, _SEE_OTHER)
    response.set_cookie(
        _COOKIE,
        _digest(response.headers["location"]),
        max_age=_WITHIN_S,
        path=PREFIX,
        httponly=True,
        samesite="lax",
    )
    return response


def done_of(request: Request) -> str:
    """Return what the address says was done, if a form has just led there; else an empty text."""
    return request.query_params.get("done", "") if _is_led_here(request) else ""


def said(response: Response, request: Request) -> None:
    """Let a browser forget that a form led to this page."""
    # A script that sent the form reads the answer first, and then opens the same address.
    if _is_led_here(request) and request.headers.get("hx-request") != "true":
        response.delete_cookie(_COOKIE, path=PREFIX, httponly=True, samesite="lax")


def _is_led_here(request: Request) -> bool:
    here = f"{request.scope['raw_path'].decode()}?{request.scope['query_string'].decode()}"
    return request.cookies.get(_COOKIE) == _digest(here)


def _digest(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()[:32]
