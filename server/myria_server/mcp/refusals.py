"""Answers to JSON text that is not strict, over HTTP and stdio alike."""

from __future__ import annotations

import re
from typing import Any

import mcp_types
import orjson

from myria.errors import InternalError, MyriaError, UnavailableError

_ARGUMENTS = "params.arguments"


def blamed_call(message: Any, error: MyriaError) -> tuple[int | str, str, MyriaError] | None:
    """Return (request id, tool name, error about its arguments) if a refused text is a call with bad arguments.

    Such a refusal is the tool's answer, so that its caller can mend it; all others are JSON-RPC errors.

    Args:
        message: the text's outline.
    """
    request_id = id_of(message)
    if request_id is None or message.get("method") != "tools/call":
        return None
    name = message["params"].get("name") if isinstance(message.get("params"), dict) else None
    if not isinstance(name, str) or not str(error.details.get("path", "")).startswith(_ARGUMENTS):
        return None
    return request_id, name, _about_arguments(error)


def id_of(message: Any) -> int | str | None:
    """Return the JSON-RPC id of a message, or None where there is none that an answer could carry."""
    request_id = message.get("id") if isinstance(message, dict) else None
    if type(request_id) is str:
        return request_id if request_id.isascii() or not any("\ud800" <= c <= "\udfff" for c in request_id) else None
    return request_id if type(request_id) is int and -(2**63) <= request_id < 2**64 else None


def code_of(error: MyriaError) -> int:
    """Return the JSON-RPC code of an error: the caller's, or this server's, which nothing in the request would mend.

    The specification keeps the codes from -32099 to -32000 for itself, so none of those is made up here.
    """
    is_ours = isinstance(error, UnavailableError | InternalError)
    return mcp_types.INTERNAL_ERROR if is_ours else mcp_types.INVALID_REQUEST


def rpc_error(request_id: int | str | None, code: int, message: str, data: Any = None) -> bytes:
    """Return a JSON-RPC error response."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}, default=str)


def _about_arguments(error: MyriaError) -> MyriaError:
    def cut(text: str) -> str:
        return text.replace(_ARGUMENTS + ".", "").replace(_ARGUMENTS, "the arguments")

    details = {key: cut(value) if isinstance(value, str) else value for key, value in error.details.items()}
    field = str(details.pop("path", details.get("field", "")))
    details["field"] = field
    index = re.match(r"events\[([0-9]+)\]", field)
    if index:
        details["index"] = int(index[1])
    return type(error)(cut(error.message), **details)
