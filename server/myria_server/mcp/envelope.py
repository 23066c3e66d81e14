"""Checks that a decoded JSON text is a JSON-RPC 2.0 message of MCP, with messages that a person can act on.

The SDK checks this too, but answers with a validator's listing, and takes a request whose id is null or a fraction
for a notification: it would be neither carried out nor answered.
"""

from __future__ import annotations

from typing import Any

import mcp_types

from myria_server.api.coercion import whole_arguments

_KINDS = ("method", "result", "error")


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


def with_object_arguments(message: Any) -> Any:
    """Return a message with the arguments of its tool call as an object, where a client wrote them otherwise."""
    if type(message) is not dict or message.get("method") != "tools/call" or type(message.get("params")) is not dict:
        return message
    given = message["params"].get("arguments")
    if type(given) is not str and type(given) is not list:
        return message
    return {**message, "params": {**message["params"], "arguments": whole_arguments(given)}}


def _call_fault(params: dict[str, Any]) -> tuple[int, str] | None:
    if type(params.get("name")) is not str:
        return mcp_types.INVALID_PARAMS, "params.name must be the name of a tool"
    if params.get("arguments") is not None and type(params["arguments"]) is not dict:
        return mcp_types.INVALID_PARAMS, "params.arguments must be an object"
    return None
