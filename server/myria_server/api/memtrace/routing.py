"""The routes of REST: how each is declared beside what answers it, and how a request is led to one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl, unquote

from myria.access.principal import Role
from myria.errors import (
    AgentNotFound,
    InvalidArgument,
    InvalidText,
    MethodNotAllowed,
    MyriaError,
    NoteNotFound,
    PathNotFound,
    SessionNotFound,
)
from myria.log.fields import unknown_field
from myria_server.api.answers import Answer
from myria_server.api.api_call import Handler, Json
from myria_server.api.core import inputs
from myria_server.api.core.inputs import Input
from myria_server.api.memtrace import schemas as rest
from myria_server.paths import REST_PREFIX

_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Json]])

_PATH_ID_FIELDS = {"agents": "agent_id", "sessions": "session_id"}
_NOT_FOUND_ERRORS = {"memories": NoteNotFound, "agents": AgentNotFound, "sessions": SessionNotFound}
_ID = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One route.

    `path` stands below the prefix; `{id}` is one segment. `handler` answers: its name is the route's, its docstring the
    title. `query` or `body` are the models of what it takes; a body may be left out where `needs_body` is false.
    `changes` tells whether it writes. `keyed` says that it takes an Idempotency-Key. `answer` is its model, none where
    it answers nothing; `refusals` are its own, beside those of all.
    """

    name: str
    title: str
    handler: Handler
    method: str
    path: str
    query: type[Input] | None
    body: tuple[type[Input], ...]
    needs_body: bool = True
    answer: tuple[type[Answer], ...]
    changes: bool
    keyed: bool
    status: int
    refusals: tuple[type[MyriaError], ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles of which a caller needs one."""
        return ("append",) if self.changes else ("read",)

    def read(self, entry_id: str, parameters: Json, body: Any) -> Any:
        """Return the query or the body of a request, read as the route's model; None where the route takes neither.

        Args:
            entry_id: the id in the path, empty where there is none.
            parameters: those of the query.

        Raises:
            InvalidArgument: of a field that stands in the query and not in the body.
            as `inputs.read`.
        """
        if self.query is not None:
            # The id in the path decides, so the same field is taken out of the query.
            path_field = {_PATH_ID_FIELDS[self.path.split("/")[1]]: None} if entry_id else {}
            return inputs.read(self.query, {**parameters, **path_field})
        for name in parameters:
            if any(name in model.model_fields for model in self.body):
                raise InvalidArgument(f"{name} belongs into the JSON body, not into the address", field=name)
            raise unknown_field(name, ())
        if not self.body:
            return None
        fields = as_object(body)
        # Of two models the last one is that of several memories at once.
        return inputs.read(self.body[-1 if fields.get("memories") is not None else 0], fields)


class Routes:
    """The routes of an API, in the order in which they are declared."""

    def __init__(self) -> None:
        self._patterns: list[tuple[Route, re.Pattern[str]]] = []

    def __iter__(self) -> Iterator[Route]:
        return (route for route, _ in self._patterns)

    def serve(
        self,
        method: str,
        path: str,
        *,
        answer: tuple[type[Answer], ...] = (),
        status: int = 200,
        changes: bool | None = None,
        keyed: bool | None = None,
        **more: Any,
    ) -> Callable[[_Handler], _Handler]:
        """Return a decorator that serves a handler as a route; its argument `request` says what the route takes.

        Unless something else is said, all methods but GET change something, and what changes takes an Idempotency-Key.
        """
        changes = method != "GET" if changes is None else changes

        def declare(handler: _Handler) -> _Handler:
            hint = get_type_hints(handler)["request"]
            models = get_args(hint) or (() if hint is NoneType else (hint,))
            route = Route(
                name=handler.__name__,
                title=(handler.__doc__ or "").rstrip("."),
                handler=handler,
                method=method,
                path=path,
                query=next(iter(models), None) if method == "GET" else None,
                body=() if method == "GET" else models,
                answer=answer,
                changes=changes,
                keyed=changes if keyed is None else keyed,
                status=status if answer else 204,
                **more,
            )
            self._patterns.append((route, re.compile(path.replace("{id}", "([^/]*)"))))
            return handler

        return declare

    def match(self, method: str, raw_path: bytes) -> tuple[Route, str]:
        """Return the route of a request, and the id in its path, empty where the route has none.

        Args:
            raw_path: as it was sent, percent-encoded.

        Raises:
            PathNotFound: nothing is served there.
            MethodNotAllowed: something is, by other methods; the detail `allow` names them.
            InvalidText: an id that is no text in UTF-8, or holds NUL.
            NoteNotFound, AgentNotFound, SessionNotFound: an id that nothing can have.
        """
        path = raw_path.decode("latin-1").partition("?")[0].removeprefix(REST_PREFIX).removesuffix("/")
        candidates = {
            route.method: (route, path_match)
            for route, pattern in self._patterns
            if (path_match := pattern.fullmatch(path))
        }
        if not candidates:
            raise PathNotFound(f"nothing is served here; {REST_PREFIX}/openapi.json says what is")
        if method not in candidates:
            allow = ", ".join(sorted(candidates))
            raise MethodNotAllowed(f"this path takes {allow}", allow=allow)
        route, path_match = candidates[method]
        if not path_match.groups():
            return route, ""
        try:
            entry_id = unquote(path_match[1], errors="strict")
        except UnicodeDecodeError as error:
            raise InvalidText("the id in the path is no UTF-8", field="id") from error
        if _ID.fullmatch(entry_id) is None:
            kind = path.split("/")[1]
            raise _NOT_FOUND_ERRORS[kind](f"{'memory' if kind == 'memories' else kind[:-1]} not found")
        return route, entry_id


def read_query(query: bytes) -> Json:
    """Return the parameters of a query.

    Raises:
        InvalidArgument: one is given twice.
    """
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        repeated = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise InvalidArgument(f"{repeated[:50]} is given more than once", field=repeated[:50])
    return parameters


def read_key(key: bytes | None) -> str | None:
    """Return the value of the header Idempotency-Key, None where there is none.

    Raises:
        InvalidText: it is empty, too long, or not printable ASCII.
    """
    if key is None:
        return None
    if not 0 < len(key) <= rest.MAX_KEY or not key.isascii() or not key.decode().isprintable():
        raise InvalidText(
            f"the header Idempotency-Key must hold 1 to {rest.MAX_KEY} printable characters of ASCII",
            field="Idempotency-Key",
        )
    return key.decode()


def as_object(body: Any) -> Json:
    """Return the fields of a body; none where it was left out.

    Raises:
        InvalidArgument: it is no object.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise InvalidArgument("invalid request body: it must be a JSON object", field="")
    return body
