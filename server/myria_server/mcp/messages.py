"""JSON-RPC 2.0 messages of MCP over any transport: what is wrong with one, whose it is, and how one is refused.

The SDK checks messages too, but answers with a validator's listing, and takes a request whose id is null or a fraction
for a notification: it would be neither carried out nor answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mcp_types
import orjson

from myria.errors import InternalError, MyriaError, UnavailableError
from myria_server.api.coercion import whole_arguments

MAX_BATCH_MESSAGES = 100
"""Messages in one JSON-RPC batch."""

_KINDS = ("method", "result", "error")
_ARGUMENTS = "params.arguments"


def fault(message: Any) -> tuple[int, str] | None:
    """Return the JSON-RPC error code and message for what is wrong with a decoded message, or None.

    Parameters are looked at only as far as every tool call needs them.
    """
    if type(message) is not dict:
        return mcp_types.INVALID_REQUEST, "a message must be a JSON object"
    if message.get("jsonrpc") != "2.0":
        return mcp_types.INVALID_REQUEST, 'jsonrpc must be "2.0"'
    if not any(kind in message for kind in _KINDS):
        return mcp_types.INVALID_REQUEST, "method is missing"
    if "method" not in message:
        return None
    if type(message["method"]) is not str:
        return mcp_types.INVALID_REQUEST, "method must be text"
    if "id" in message and type(message["id"]) is not int and type(message["id"]) is not str:
        return mcp_types.INVALID_REQUEST, "id must be text or a whole number; a notification has none"
    params = message.get("params")
    if params is not None and type(params) is not dict:
        return mcp_types.INVALID_PARAMS, "params must be an object"
    return _call_fault(params or {}) if message["method"] == "tools/call" else None


def _call_fault(params: dict[str, Any]) -> tuple[int, str] | None:
    if type(params.get("name")) is not str:
        return mcp_types.INVALID_PARAMS, "params.name must be the name of a tool"
    if params.get("arguments") is not None and type(params["arguments"]) is not dict:
        return mcp_types.INVALID_PARAMS, "params.arguments must be an object"
    return None


def with_object_arguments(message: Any) -> Any:
    """Return a message whose tool arguments are an object, also where a client sent JSON text or an empty list.

    The same object is returned where nothing changes.
    """
    if type(message) is not dict or message.get("method") != "tools/call" or type(message.get("params")) is not dict:
        return message
    arguments = message["params"].get("arguments")
    if type(arguments) is not str and type(arguments) is not list:
        return message
    return {**message, "params": {**message["params"], "arguments": whole_arguments(arguments)}}


def called_tool(message: Any) -> str | None:
    """Return the name of the tool that a message calls, even a malformed one; None where it calls none."""
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    return name if isinstance(name, str) else None


def id_of(message: Any) -> int | str | None:
    """Return the JSON-RPC id of a message; None where it has none, or one that JSON of an answer could not hold."""
    request_id = message.get("id") if isinstance(message, dict) else None
    if type(request_id) is str:
        return request_id if request_id.isascii() or not any("\ud800" <= c <= "\udfff" for c in request_id) else None
    return request_id if type(request_id) is int and -(2**63) <= request_id < 2**64 else None


def cancelled_id(message: Mapping[str, Any]) -> int | str | None:
    """Return the id of the request that a cancelling notification names."""
    return id_of({"id": (message.get("params") or {}).get("requestId")})


def code_of(error: MyriaError) -> int:
    """Return the JSON-RPC code of an error: of the caller's request, or of this server, whatever the request was.

    The specification keeps the codes from -32099 to -32000 for itself, so none of those is made up here.
    """
    is_server_fault = isinstance(error, UnavailableError | InternalError)
    return mcp_types.INTERNAL_ERROR if is_server_fault else mcp_types.INVALID_REQUEST


def rpc_error(request_id: int | str | None, code: int, message: str, data: Any = None) -> bytes:
    """Return a JSON-RPC error response."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}, default=str)


def call_at_fault(message: Any, error: MyriaError) -> tuple[int | str, str, MyriaError] | None:
    """Return (request id, tool name, error about its arguments) if a refused text is a call with bad arguments.

    Such a refusal is the tool's answer, so that its caller can mend it; all others are JSON-RPC errors.

    Args:
        message: the refused text's outline (`jsontext.outline`).
    """
    request_id, name = id_of(message), called_tool(message)
    if request_id is None or name is None or not str(error.details.get("path", "")).startswith(_ARGUMENTS):
        return None
    return request_id, name, _about_arguments(error)


def _about_arguments(error: MyriaError) -> MyriaError:
    """Return an error about a message as one about its tool's arguments: without `params.arguments` in its paths."""

    def without_prefix(text: str) -> str:
        return text.replace(_ARGUMENTS + ".", "").replace(_ARGUMENTS, "the arguments")

    details = {key: without_prefix(value) if isinstance(value, str) else value for key, value in error.details.items()}
    field = str(details.pop("path", details.get("field", "")))
    details["field"] = field
    index = re.match(r"events\[([0-9]+)\]", field)
    if index:
        details["index"] = int(index[1])
    return type(error)(without_prefix(error.message), **details)
