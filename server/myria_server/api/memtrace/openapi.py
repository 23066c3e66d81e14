"""The OpenAPI 3.1 document of REST, made from its routes and the models that read requests, and a page of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib import metadata
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from myria.errors import (
    BodyTooLarge,
    CredentialInvalid,
    DatabaseUnavailable,
    DeadlineExceeded,
    HostNotAllowed,
    InternalError,
    InvalidArgument,
    MyriaError,
    NotFoundError,
    RateLimited,
    RoleRequired,
)
from myria_server.api.memtrace import schemas as rest
from myria_server.api.memtrace.answer_schemas import RestRefusal
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.memtrace.routing import Route
from myria_server.api.schemas import without
from myria_server.api.without_read import open_model
from myria_server.paths import REST_PREFIX

Json = dict[str, Any]

_COMMON_ERRORS: tuple[type[MyriaError], ...] = (
    InvalidArgument,
    CredentialInvalid,
    RoleRequired,
    HostNotAllowed,
    RateLimited,
    InternalError,
    DatabaseUnavailable,
)
"""Errors that stand for those with the same status, which every route may answer."""

DOCUMENT_PATH, PAGE_PATH = REST_PREFIX + "/openapi.json", REST_PREFIX + "/docs"

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"

_SCHEMA_REFERENCE = "#/components/schemas/{model}"
_STATUS_TEXTS = {
    400: "The request is wrong; error says what to change",
    401: "No key, or one that is refused",
    403: "This key may not do this",
    404: "Absent, or not for this key to see",
    408: "The request did not arrive in time",
    409: "What is stored forbids it",
    413: "The body is too large",
    421: "This server does not answer under that name",
    429: "Too many requests; retry-after says when to come again",
    431: "The request line and the headers are too large",
    500: "An error of the server",
    503: "Not now; nothing was changed for certain, so try again",
}


def rest_documents() -> tuple[StarletteRoute, ...]:
    """Return the routes of the document and of the page, which are open to everybody."""

    async def show_document(_request: Request) -> Response:
        return Response(orjson.dumps(document(metadata.version("myria"))), media_type="application/json")

    async def show_page(_request: Request) -> Response:
        return Response(
            page(document(metadata.version("myria"))),
            media_type="text/html",
            headers={"content-security-policy": _POLICY},
        )

    return StarletteRoute(DOCUMENT_PATH, show_document), StarletteRoute(PAGE_PATH, show_page)


@cache
def document(version: str) -> Json:
    """Return the document, as plain JSON; do not change it.

    Args:
        version: of the program that serves it.
    """
    used: set[type[BaseModel]] = {
        RestRefusal,
        *(model for route in ROUTES for model in (*route.body, *_answer_models(route))),
    }
    models = sorted(used, key=lambda model: model.__name__)
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template=_SCHEMA_REFERENCE, title=None, description=None
    )
    described = {name: _tidy(schema) for name, schema in schemas["$defs"].items()}
    described["MemoriesInput"]["properties"]["memories"]["items"] = {
        "$ref": _SCHEMA_REFERENCE.format(model="MemoryInput")
    }
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(REST_PREFIX + route.path, {})[route.method.lower()] = _operation_of(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Myria over REST",
            "version": version,
            "description": "Memory that the agents of an organisation share, in the contract of Memtrace and more.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"apiKey": []}],
        "paths": paths,
        "components": {
            "schemas": described,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def page(described: Json) -> str:
    """Return a page that shows a document, without scripts and without anything from elsewhere."""
    info = described["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}</title><style>",
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}",
        "code,h3{font-family:ui-monospace,monospace}h3{margin:2rem 0 0}td{padding:0 1rem 0 0;vertical-align:top}",
        f"</style><h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        "<p>The same for programs: <a href=openapi.json>openapi.json</a></p>",
    ]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h3>{method.upper()} {escape(path)}</h3><p>{escape(operation['summary'])}</p><table>")
            for name, schema in _fields(operation, described):
                text = schema.get("description", "")
                kind = ", ".join(map(str, schema.get("enum", (schema.get("type", ""),))))
                parts.append(f"<tr><td><code>{escape(name)}</code><td>{escape(kind)}<td>{escape(text)}")
            parts.append("</table>")
    return "".join(parts)


def _answer_models(route: Route) -> list[type[BaseModel]]:
    """Return the models of a route's answers: to readers, and to keys that may only append."""
    without_read = map(open_model, route.answer) if route.changes else ()
    return list(dict.fromkeys([*route.answer, *without_read]))


def _operation_of(route: Route) -> Json:
    """Return the OpenAPI operation of a route: its parameters, body and responses."""
    parameters: list[Json] = []
    if "{id}" in route.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}})
    if route.query is not None:
        described = _tidy(route.query.model_json_schema(ref_template=_SCHEMA_REFERENCE))
        for name, schema in described["properties"].items():
            parameter = {"name": name, "in": "query", "schema": without(schema, "description")}
            if "description" in schema:
                parameter["description"] = schema["description"]
            parameters.append(parameter)
    if route.keyed:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "Your own name of this call: a repeat answers what the first one did",
                "schema": {"type": "string", "minLength": 1, "maxLength": rest.MAX_KEY, "pattern": "^[!-~]+$"},
            }
        )
    operation: Json = {"operationId": route.name, "summary": route.title, "responses": _responses_of(route)}
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {
            "required": route.needs_body,
            "content": {"application/json": {"schema": _one_of(route.body)}},
        }
    return operation


def _responses_of(route: Route) -> Json:
    """Return the OpenAPI responses of a route by status: its success, and every refusal that may happen."""
    success: Json = {"description": route.title}
    if route.answer:
        success["content"] = {"application/json": {"schema": _one_of(_answer_models(route))}}
    responses: Json = {str(route.status): success}
    refusals: tuple[type[MyriaError], ...] = (*_COMMON_ERRORS, *route.refusals, DeadlineExceeded)
    statuses = {refusal.http_status for refusal in refusals}
    if "{id}" in route.path:
        statuses.add(NotFoundError.http_status)  # an id that nothing can have
    statuses |= {408, 431}  # by the part of the server that reads HTTP
    if route.body:
        statuses.add(BodyTooLarge.http_status)
    for status in sorted(statuses):
        content = {"application/json": {"schema": {"$ref": _SCHEMA_REFERENCE.format(model=RestRefusal.__name__)}}}
        responses[str(status)] = {"description": _STATUS_TEXTS[status], "content": content}
    return responses


def _one_of(models: Sequence[type[BaseModel]]) -> Json:
    references: list[Json] = [{"$ref": _SCHEMA_REFERENCE.format(model=model.__name__)} for model in models]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _tidy(value: Any, *, is_name_map: bool = False) -> Any:
    """Return a schema without titles and without defaults of null, which only mean that a field may be left out.

    Args:
        is_name_map: `value` maps field names to schemas, so a key such as `title` is a name and stays.
    """
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    if not isinstance(value, dict):
        return value
    if is_name_map:
        return {key: _tidy(item) for key, item in value.items()}
    dropped_keys = {"title"} | ({"default"} if value.get("default", 0) is None else set())
    return {key: _tidy(item, is_name_map=key == "properties") for key, item in value.items() if key not in dropped_keys}


def _fields(operation: Json, described: Json) -> Iterator[tuple[str, Json]]:
    for parameter in operation.get("parameters", ()):
        yield parameter["name"], {**parameter["schema"], "description": parameter.get("description", "")}
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for reference in schema.get("anyOf", [schema] if schema else []):
        yield from described["components"]["schemas"][reference["$ref"].rsplit("/", 1)[1]]["properties"].items()
