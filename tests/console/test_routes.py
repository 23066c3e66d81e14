"""Lists that tests and benchmarks go through hold every page and form of the console, so that none is forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.routing import Match, Route

from benchmarks.console_pages import PAGES as MEASURED
from tests.clients.test_console import PAGES as IN_A_BROWSER
from tests.clients.test_console_keys import PAGES as IN_A_BROWSER_WITH_A_KEY
from tests.console.forms import FORMS
from tests.console.test_isolation import PAGES as ASKED_BY_ANYBODY
from tests.server.wire import Served

NO_PAGES = {
    "/console": "leads to Ask",
    "/console/": "leads to Ask",
    "/console/static/{name}": "a file that pages load",
    "/console/sign-in": "asks nobody where no key is needed; tests/clients/test_console_issuer.py opens it",
    "/console/sign-in/with/{name}": "leads to an issuer",
    "/console/signed-in/{name}": "leads from an issuer to a page",
    "/console/events/{event_id}/payload.json": "a file to save",
    "/console/people/export": "a file to save",
    "/console/audit.jsonl": "a file to save",
    "/console/changes/events": "a stream, for the page of changes",
    "/console/changes/builds/{build_id}/events": "a stream, for the page of a build",
}
NOT_MEASURED = NO_PAGES | {
    "/console/erasures/{erasure_id}": "it holds as much whatever is erased",
    "/console/keys/new": "it holds as much however many keys there are, and needs one",
    "/console/keys/grants/{grant_id}": "it holds as much however many grants there are, and needs a key",
    "/console/keys/{key_id}/revoke": "it holds as much however many keys there are, and needs one",
    "/console/keys/{key_id}/rotate": "it holds as much however many keys there are, and needs one",
}
NEVER_ENDS = {
    "/console/changes/events": "a stream; tests/console/test_live.py reads it with keys of all kinds",
    "/console/changes/builds/{build_id}/events": "the same",
}
NO_SESSION = {"/console/sign-in": "there is no session yet; tests/console/test_protection.py sends it"}


def answered(served: Served, method: str) -> list[Route]:
    """Return the routes that answer a method."""
    console = served.server.app.console
    assert console is not None
    return [route for route in console.routes if isinstance(route, Route) and method in (route.methods or ())]


def paths_of(routes: list[Route], method: str, addresses: Iterable[str]) -> set[str]:
    """Return the paths of the routes to which addresses below the console's lead."""
    paths = set()
    for address in addresses:
        scope = {"type": "http", "method": method, "path": "/console" + urlsplit(address).path, "path_params": {}}
        paths |= {next((route.path for route in routes if route.matches(scope)[0] == Match.FULL), "")}
    return paths - {""}  # `/nowhere` leads to none


async def test_every_page_is_in_the_lists_of_pages(served: Served) -> None:
    """Each route that is opened is looked at in a browser, measured, and asked for by keys of all kinds."""
    routes = answered(served, "GET")
    every = {route.path for route in routes}
    for addresses, left_out in (
        ((*IN_A_BROWSER, *IN_A_BROWSER_WITH_A_KEY), NO_PAGES),
        (MEASURED.values(), NOT_MEASURED),
        (ASKED_BY_ANYBODY, NEVER_ENDS),
    ):
        assert paths_of(routes, "GET", addresses) == every - set(left_out)


async def test_every_form_is_in_the_lists_of_forms(served: Served) -> None:
    """Each route that takes a form is sent forged ones, and others about things of anybody."""
    routes = answered(served, "POST")
    assert paths_of(routes, "POST", FORMS) == {route.path for route in routes} - set(NO_SESSION)
