"""The OpenAPI document of REST: what it says is true of every answer, whatever is asked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import jsonschema
import pytest

from myria.contract.openapi import document
from myria.contract.rest import PREFIX
from myria.contract.routes import ROUTES
from tests.server.wire import Served
from tests.support.counts import SOAK, share

CASES = 50_000 if SOAK else share(20_000)
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    2**63,
    "",
    " ",
    "\0",
    "a\0b",
    "\u202e",
    "ß" * 300,
    "x" * 70_000,
    "'; DROP TABLE myria.events; --",
    "%00%ff",
    "9999-99-99",
    "24h",
    [],
    [[]],
    {},
    {"a": {"b": [None]}},
    {"": ""},
    ["a", 1],
)


def value_of(schema: dict[str, Any], schemas: dict[str, Any], rng: random.Random) -> Any:
    """Return a value of a schema, or sometimes one of none."""
    if rng.random() < 0.08:
        return rng.choice(HOSTILE)
    if "$ref" in schema:
        return value_of(schemas[schema["$ref"].rsplit("/", 1)[1]], schemas, rng)
    if "anyOf" in schema:
        return value_of(rng.choice(schema["anyOf"]), schemas, rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    makers: dict[str, Callable[[], Any]] = {
        "string": lambda: rng.choice(["bot", "note_1", "general", "a-b", "episodic", "1h", "v1.2", "x" * 20]),
        "integer": lambda: rng.choice([0, 1, 3, 1000, 10**6]),
        "number": lambda: rng.choice([0, 0.5, 1]),
        "boolean": lambda: rng.random() < 0.5,
        "array": lambda: [value_of(schema.get("items", {}), schemas, rng) for _ in range(rng.randrange(4))],
        "object": lambda: object_of(schema, schemas, rng),
    }
    return makers.get(schema.get("type", ""), lambda: rng.choice(HOSTILE))()


def object_of(schema: dict[str, Any], schemas: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return an object with what is required, and some of the rest."""
    required = schema.get("required", ())
    chosen = {
        name: value_of(field, schemas, rng)
        for name, field in schema.get("properties", {}).items()
        if rng.random() < (0.97 if name in required else 0.25)
    }
    return chosen | ({"colour": "red"} if rng.random() < 0.02 else {})


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


@pytest.mark.parametrize("seed", range(2))
async def test_every_answer_is_as_documented(served: Served, described: dict[str, Any], seed: int) -> None:
    """Good and hostile requests: no error of the server, no status, type or body that the document does not name."""
    rng = random.Random(seed)
    known = ["note_0", "bot", "sess_0"]
    statuses: set[int] = set()
    for _ in range(CASES // 2):
        path, method = rng.choice([(path, method) for path, found in described["paths"].items() for method in found])
        operation = described["paths"][path][method]
        request = request_of(path, method, described, known, rng)
        response = await served.client.send(served.client.build_request(**request))
        statuses.add(response.status_code)
        check(operation, response, described, request)
        if response.status_code == 201:
            known = [*known[-200:], response.json().get("id", "bot")]
    assert {200, 201, 400, 404} <= statuses


def request_of(
    path: str, method: str, described: dict[str, Any], known: list[str], rng: random.Random
) -> dict[str, Any]:
    """Return a request of an operation."""
    operation, schemas = described["paths"][path][method], described["components"]["schemas"]
    entry = rng.choice(known) if rng.random() < 0.8 else str(rng.choice(HOSTILE))[:150] or "x"
    request: dict[str, Any] = {"method": method.upper(), "url": path.replace("{id}", quote(entry, safe=""))}
    query, sent = [], {}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query" and rng.random() < 0.2:
            query.append((parameter["name"], str(value_of(parameter["schema"], schemas, rng))[:500]))
        if parameter["in"] == "header" and rng.random() < 0.2:
            sent[parameter["name"]] = rng.choice(["k1", "k2", "k" * 300, ""])
    if query:
        request["url"] += "?" + urlencode(query)
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        request["content"] = json.dumps(value_of(schema, schemas, rng)).encode()
        if rng.random() < 0.03:
            request["content"] = rng.choice([b"", b"{", b"\xff", b"nonsense", b"[" * 5_000])
        sent["content-type"] = "application/json"
    return {**request, "headers": sent}


def check(
    operation: dict[str, Any], response: httpx.Response, described: dict[str, Any], request: dict[str, Any]
) -> None:
    """Compare an answer with the document."""
    assert response.status_code < 500, (request, response.text)
    said = operation["responses"].get(str(response.status_code))
    assert said is not None, (request, response.status_code, response.text)
    if "content" not in said:
        assert response.content == b""
        return
    assert response.headers["content-type"] == "application/json"
    schema = {**said["content"]["application/json"]["schema"], "components": described["components"]}
    error = next(jsonschema.Draft202012Validator(schema).iter_errors(response.json()), None)
    assert error is None, (request, response.text, error and error.message)
