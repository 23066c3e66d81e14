"""Where REST describes itself: the OpenAPI document, and a page that shows it, open to everybody."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from myria_server.api.memtrace.openapi import document, page
from myria_server.api.memtrace.schemas import PREFIX

DOCUMENT_PATH, PAGE_PATH = PREFIX + "/openapi.json", PREFIX + "/docs"

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


def rest_documents() -> tuple[Route, ...]:
    """Return the routes of both; each is written when it is first asked for."""
    return Route(DOCUMENT_PATH, _show_document), Route(PAGE_PATH, _show_page)


async def _show_document(_request: Request) -> Response:
    return Response(_document(), media_type="application/json")


async def _show_page(_request: Request) -> Response:
    return Response(_page(), media_type="text/html", headers={"content-security-policy": _POLICY})


@cache
def _document() -> bytes:
    return orjson.dumps(document(version("myria")))


@cache
def _page() -> str:
    return page(orjson.loads(_document()))
