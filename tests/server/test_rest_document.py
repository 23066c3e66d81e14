"""The OpenAPI document of REST: what it says is true of every answer, whatever is asked."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import jsonschema
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.memtrace.openapi import document
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served
from tests.support.counts import SOAK, share
from tests.support.patience import PATIENCE_S

CASES = 50_000 if SOAK else share(10_000)
SHARES = 2
CHECKED = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    allow_header_conformance,
]
AGENT, KNOWN_IDS = "bot", 20
FIRST: list[tuple[str, dict[str, Any]]] = [
    ("/agents", {"name": AGENT}),
    ("/sessions", {"agent_id": AGENT}),
    ("/memories", {"agent_id": AGENT, "content": "The first of all."}),
]
"""One of each kind, that routes with an id have something to answer about."""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The document, as it goes out."""
    described: dict[str, Any] = json.loads(json.dumps(document("1")))
    return described


def test_the_document_is_whole(described: dict[str, Any]) -> None:
    """Each route is in it, each reference leads somewhere, and each schema is one."""
    operations = {
        operation["operationId"] for operations in described["paths"].values() for operation in operations.values()
    }
    assert operations == {route.name for route in ROUTES}
    schemas = described["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    references = json.dumps(described).split('"$ref": "#/components/schemas/')[1:]
    assert {reference.split('"')[0] for reference in references} <= schemas.keys()


def test_each_route_names_what_the_reading_of_http_answers(described: dict[str, Any]) -> None:
    """Whatever is asked for, its head can come too slowly or be too large, or be none."""
    for operations in described["paths"].values():
        for operation in operations.values():
            assert {"400", "408", "431"} <= operation["responses"].keys()


async def test_both_are_served_without_a_key_and_without_scripts(served: Served) -> None:
    """The page needs nothing from elsewhere."""
    shown = await served.client.get(PREFIX + "/openapi.json")
    assert shown.json()["openapi"] == "3.1.0"
    page = await served.client.get(PREFIX + "/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in described_paths(shown.json()):
        assert path in page.text
    assert "<script" not in page.text
    assert "//" not in page.text


def described_paths(shown: dict[str, Any]) -> list[str]:
    """Return the paths that a document names."""
    return list(shown["paths"])


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SHARES))
async def test_every_answer_is_as_documented(served: Served, described: dict[str, Any], part: int) -> None:
    """Requests of the document's schemas, and hostile ones against them: no error of the server, no status, type,
    header or body that the document does not name."""
    statuses = await asyncio.to_thread(ask_by_the_document, served.server.url.removesuffix("/mcp"), described, part)
    assert {200, 400} <= statuses


def made(session: requests.Session, base: str, path: str, body: dict[str, Any]) -> str:
    """Keep or register something and return its id."""
    answer = session.post(base + path, json=body, timeout=PATIENCE_S)
    assert answer.status_code == HTTPStatus.CREATED, answer.text
    made_id: str = answer.json()["id"]
    return made_id


def ask_by_the_document(url: str, described: dict[str, Any], part: int) -> set[int]:
    """Ask every other route its share of the cases, among them known ids, and return the statuses of the answers."""
    open_to_all = {name: value for name, value in described.items() if name != "security"}
    found = schemathesis.openapi.from_dict(open_to_all).get_all_operations()
    operations = [operation.ok() for operation in found if isinstance(operation, Ok)]
    assert len(operations) == len(ROUTES)
    statuses, asked = set(), 0
    with requests.Session() as session:
        known = [made(session, url + PREFIX, path, body) for path, body in FIRST]
        for operation in operations[part::SHARES]:

            @seed(part)
            @settings(
                max_examples=-(-CASES // len(operations)),
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=operation.as_strategy(), place=st.integers(0, 2 * KNOWN_IDS))
            def ask(case: schemathesis.Case[Any], place: int) -> None:
                nonlocal asked
                if "id" in case.path_parameters and place < KNOWN_IDS:
                    case.path_parameters["id"] = known[place % len(known)]
                if isinstance(case.body, dict) and "agent_id" in case.body and place < KNOWN_IDS:
                    case.body["agent_id"] = AGENT
                response = case.call(base_url=url, session=session, timeout=PATIENCE_S)
                asked += 1
                statuses.add(response.status_code)
                case.validate_response(response, checks=CHECKED)
                if response.status_code == HTTPStatus.CREATED:
                    later = [*known[len(FIRST) :], response.json().get("id", AGENT)]
                    known[len(FIRST) :] = later[len(FIRST) - KNOWN_IDS :]

            ask()
    assert asked >= CASES // SHARES
    return statuses
