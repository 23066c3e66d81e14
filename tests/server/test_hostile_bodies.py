"""Bodies made to cost much are refused with a code, by bounded work; legitimate large ones still go through."""

from __future__ import annotations

import copy
import json
import random
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from benchmarks.attacker import NAME, SHAPES, hostile
from myria.settings import Settings
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.calls import SDK_BYTES
from tests.server.wire import MODERN, Served, call, event, headers

MEBIBYTE = 1024 * 1024
LARGEST = Settings().mcp.body_bytes - 1_000


def code_of(message: dict[str, Any]) -> str:
    """Return the code in a refusal, be it a JSON-RPC error or a tool's."""
    error = message["error"]["data"] if "error" in message else message["result"]["structuredContent"]["error"]
    return str(error["code"])


REFUSALS = {
    *("body_too_large", "malformed_json", "payload_too_deep", "invalid_text", "unknown_field"),
    *("invalid_argument", "batch_too_large", "payload_too_large"),
}


@pytest.mark.parametrize("shape", sorted(SHAPES))
async def test_every_hostile_body_is_refused_with_a_code(shape: str, served: Served) -> None:
    """Whatever its shape, size and order: a coded refusal, and the server goes on."""
    chosen = random.Random(shape)
    for size in (1_000, 40_000, chosen.randrange(100_000, MEBIBYTE // 2), LARGEST):
        body = hostile(shape, size, call_first=chosen.random() < 0.5)
        sent = headers(NAME, version=chosen.choice([None, "2025-06-18"]))
        response = await served.post(body, sent)
        assert code_of(response.json()) in REFUSALS, response.text[:500]
    assert (await served.client.get("/livez")).status_code == 200


@pytest.mark.parametrize("shape", sorted(SHAPES))
async def test_a_hostile_body_needs_bounded_memory(shape: str) -> None:
    """The largest body of any shape is decoded or refused within twenty times its size."""
    bodies = Bodies(values=Settings().mcp.body_values, wait_s=0)
    body = hostile(shape, LARGEST)
    tracemalloc.start()
    with suppress(Refused):
        await bodies.decode(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(body)


@pytest.mark.parametrize("shape", ["unknown_fields", "duplicate_keys", "empty_objects"])
async def test_a_refusal_answers_its_request(shape: str, served: Served) -> None:
    """However much stands around it, a refused call is answered under its id, as the tool's refusal where it is one."""
    for call_first in (True, False):
        response = await served.post(hostile(shape, MEBIBYTE, call_first=call_first), headers(version="2025-06-18"))
        assert response.json()["id"] == 7


async def test_what_the_sdk_parses_has_a_bound(served: Served) -> None:
    """Only calls may be large: whatever else is said is read by the SDK once more, at one go."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"vendor/trace": "x" * SDK_BYTES}}}
    refused = await served.post(message, headers(version="2025-06-18"))
    assert (refused.status_code, code_of(refused.json()), refused.json()["id"]) == (413, "body_too_large", 1)


@pytest.mark.parametrize("version", [MODERN, "2025-06-18", "2024-11-05"])
@pytest.mark.parametrize("place", ["_meta", "params", "message"])
async def test_what_stands_beside_arguments_has_a_bound(served: Served, place: str, version: str) -> None:
    """A call may be as large as its arguments are; its envelope is checked by the SDK at one go."""
    message = copy.deepcopy(call("query_event_nodes", {"query": "x" * 20_000}, version=version, request_id=3))
    params = message["params"]
    holders = {"_meta": params.setdefault("_meta", {}), "params": params, "message": message}
    holders[place]["vendor/trace"] = "x" * SDK_BYTES
    refused = await served.post(message, headers("query_event_nodes", version=version))
    assert (refused.status_code, code_of(refused.json()), refused.json()["id"]) == (413, "body_too_large", 3)


async def test_a_full_batch_of_large_events_goes_through(served: Served) -> None:
    """500 events near the largest body are stored, in order."""
    events = [event(f"k{number}", text="é" * 4_000) for number in range(500)]
    body = json.dumps(call(NAME, {"events": events}), ensure_ascii=False).encode()
    answer = (await served.post(body, headers(NAME))).json()
    numbers = [result["event_seq"] for result in answer["result"]["structuredContent"]["results"]]
    assert len(numbers) == 500
    assert numbers == sorted(numbers)
