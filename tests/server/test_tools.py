"""Every tool over HTTP against the real memory: answers fit their published schemas, refusals are coded."""

from __future__ import annotations

import math
from typing import Any

import jsonschema
import pytest

from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.tools import TOOLS, output_schema
from tests.server.wire import LEGACY, MODERN, Answer, Served, event, listed, serving
from tests.support.postgres import Database

ASKED = {"participants": ["user_42"]}
_TOOLS = {tool.name: tool for tool in TOOLS}


def fits(name: str, answer: Answer) -> dict[str, Any]:
    """Check an answer against its tool's output schema and model."""
    jsonschema.Draft202012Validator(output_schema(_TOOLS[name])).validate(answer.content)
    if not answer.is_error:
        _TOOLS[name].answer.model_validate(answer.content)
    content: dict[str, Any] = answer.content
    return content


async def test_what_is_appended_is_found_at_once(served: Served) -> None:
    """An acknowledged event is in the next answer, with everything that was stored."""
    stored = fits("append_event", await served.call("append_event", event("k1", topic_hints=[])))
    found = fits("query_event_nodes", await served.call("query_event_nodes", ASKED | {"query": "memory"}))
    node = found["root"]["children"][0]
    assert (node["kind"], node["event_id"]) == ("event", stored["event_id"])
    assert node["payload"]["text"] == "We design the memory system"
    assert (found["snapshot_id"], node["indexed"], found["counts"]["fresh"]) == (None, False, 1)
    looked_up = fits("get_event", await served.call("get_event", ASKED | {"event_id": stored["event_id"]}))
    assert looked_up["event"]["source_event_key"] == "k1"
    references = fits("query_references", await served.call("query_references", ASKED))
    assert references["root"]["children"][0]["snippet"]


async def test_minus_zero_is_stored_as_zero(served: Served) -> None:
    """PostgreSQL's JSON has one zero: the sign of -0.0 is not kept, as docs/tools.md says, and a repeat is the same."""
    body = event("k1", payload={"n": -0.0, "text": "cold"})
    stored = await served.call("append_event", body)
    again = await served.call("append_event", body)
    found = await served.call("get_event", ASKED | {"event_id": stored.content["event_id"]})
    number = found.content["event"]["payload"]["n"]

    assert (number, math.copysign(1, number)) == (0, 1)
    assert (again.content["deduplicated"], again.content["payload_differs"]) == (True, False)


async def test_a_repeat_is_deduplicated(served: Served) -> None:
    """The same channel and key answer the first event_id, and say whether the content differs."""
    first = await served.call("append_event", event("k1"))
    same = await served.call("append_event", event("k1"))
    other = await served.call("append_event", event("k1", text="something else"))
    assert same.content == first.content | {"deduplicated": True}
    assert other.content == first.content | {"deduplicated": True, "payload_differs": True}


async def test_a_repeat_by_others_is_refused_alike(served: Served) -> None:
    """Others learn nothing of the event that has the key: the same refusal alone and in a batch, but for the index."""
    first = await served.call("append_event", event("k1"))
    foreign = event("k1") | {"participants": ["mallory"]}
    alone = await served.call("append_event", foreign)
    batch = await served.call("append_events", {"events": [foreign]})

    assert (alone.code, batch.code) == ("source_event_key_taken", "source_event_key_taken")
    assert alone.content["error"]["details"] == {"field": "source_event_key"}
    assert batch.content["error"]["details"] == {"field": "source_event_key", "index": 0}
    assert not alone.content["error"]["retryable"]
    assert first.content["event_id"] not in str(alone.content) + str(batch.content)


async def test_a_replacement_with_a_key_of_others_is_refused_alike(served: Served) -> None:
    """It shows no participants, id or number of the event that has the key, and replaces nothing."""
    first = await served.call("append_event", event("k1"))
    mine = event(text="mine") | {"participants": ["mallory"]}
    old = (await served.call("append_event", mine)).content["event_id"]
    refused = await served.call("append_event", event("k1") | {"participants": ["mallory"], "supersedes": [old]})

    assert refused.code == "source_event_key_taken"
    assert refused.content["error"]["details"].keys() <= {"field", "index"}
    told = str(refused.content)
    assert not [shown for shown in (first.content["event_id"], "user_42", "agent_1") if shown in told]
    assert str(first.content["event_seq"]) not in told
    found = await served.call("query_event_nodes", {"participants": ["mallory"]})
    assert [node["event_id"] for node in found.content["root"]["children"]] == [old]


async def test_a_batch_is_atomic(served: Served) -> None:
    """One bad event refuses the batch with its index, and nothing is stored."""
    refused = await served.call("append_events", {"events": [event("a"), event("b", channel="")]})
    assert refused.code == "invalid_text"
    assert refused.content["error"]["details"] == {"field": "channel", "index": 1}
    assert (await served.call("query_event_nodes", ASKED)).content["root"]["children"] == []
    stored = fits("append_events", await served.call("append_events", {"events": [event("a"), event("b")]}))
    assert [result["event_seq"] for result in stored["results"]] == sorted(
        result["event_seq"] for result in stored["results"]
    )


async def test_the_observing_tools_answer_before_any_build(served: Served) -> None:
    """An empty memory has no snapshot, and says so in the published shapes."""
    await served.call("append_event", event())
    assert fits("get_active_snapshot", await served.call("get_active_snapshot", {})) == {"snapshot": None}
    assert fits("list_snapshots", await served.call("list_snapshots", {}))["snapshots"] == []
    status = fits("get_snapshot_status", await served.call("get_snapshot_status", {}))
    assert (status["tail_events"], status["active_snapshot_id"], status["last_build"]) == (1, None, None)


async def test_the_admin_tools_answer(served: Served) -> None:
    """A build can be asked for; what cannot be published or rolled back is refused with a code."""
    asked = fits("trigger_build", await served.call("trigger_build", {"full": True, "reason": "test"}))
    assert asked["build_id"] is None
    assert (await served.call("publish_snapshot", {"snapshot_id": "snp_none"})).code == "snapshot_not_found"
    assert (await served.call("rollback", {})).code == "no_previous_snapshot"


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("append_event", event(timestamp="2026-03-19T20:00:00"), "invalid_timestamp"),
        ("append_event", event(participants=[]), "invalid_participants"),
        ("append_event", event(payload={"text": "\x00"}), "invalid_text"),
        ("append_event", event(payload={"text": "\ud800"}), "invalid_text"),
        ("append_event", event(payload={"n": float("nan")}), "malformed_json"),
        ("append_event", event(payload={"n": 10**400}), "malformed_json"),
        ("append_event", event(payload={"t": "x" * 300_000}), "payload_too_large"),
        ("append_event", event(unknown=1), "unknown_field"),
        ("append_event", {}, "invalid_argument"),
        ("append_events", {"events": [event()] * 501}, "batch_too_large"),
        ("query_event_nodes", {"participants": []}, "invalid_participants"),
        ("query_event_nodes", ASKED | {"limit": 201}, "invalid_argument"),
        ("query_event_nodes", ASKED | {"cursor": "forged"}, "cursor_invalid"),
        ("query_event_nodes", ASKED | {"query": "\x00"}, "invalid_text"),
        ("query_references", ASKED | {"root": "top_none"}, "topic_not_found"),
        ("get_event", ASKED | {"event_id": "evt_none"}, "event_not_found"),
        ("get_topic", ASKED | {"topic_id": "top_none"}, "topic_not_found"),
    ],
)
@pytest.mark.parametrize("version", [MODERN, "2025-06-18"])
async def test_bad_arguments_are_refused_by_code(
    served: Served, tool: str, arguments: dict[str, Any], code: str, version: str
) -> None:
    """Bad input is a tool result with a stable code, in every era, and loses nothing."""
    answer = await served.call(tool, arguments, version=version)
    fits(tool, answer)
    assert answer.code == code
    assert answer.content["error"]["message"]


@pytest.mark.parametrize("version", [MODERN, *LEGACY, None])
async def test_every_protocol_version_calls_tools(served: Served, version: str | None) -> None:
    """Modern requests, and stateless ones of every handshake version, with or without a header."""
    assert not (await served.call("append_event", event(), version=version)).is_error


async def test_an_event_of_others_looks_absent(served: Served) -> None:
    """Forbidden and absent answer alike."""
    stored = await served.call("append_event", event())
    asked = {"event_id": stored.content["event_id"], "participants": ["stranger"]}
    forbidden = await served.call("get_event", asked)
    absent = await served.call("get_event", asked | {"event_id": "evt_none"})
    assert forbidden.code == absent.code == "event_not_found"


async def test_cursors_continue_over_http(served: Served, memory: Memory) -> None:
    """Paging by next_cursor shows every event once; a cursor of another query is refused."""
    await served.call("append_events", {"events": [event(f"k{n}", text=f"memory {n}") for n in range(7)]})
    asked = ASKED | {"query": "memory", "limit": 3}
    seen: list[str] = []
    cursor = None
    while True:
        page = fits("query_event_nodes", await served.call("query_event_nodes", asked | {"cursor": cursor}))
        seen += [node["event_id"] for node in page["root"]["children"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        wrong = await served.call("query_event_nodes", asked | {"query": "other", "cursor": cursor})
        assert wrong.code == "cursor_invalid"
    assert len(seen) == len(set(seen)) == 7


async def test_ingest_settings_are_the_limits(database: Database) -> None:
    """What an operator sets is what appends are held to."""
    settings = Settings.load(
        environ={},
        overrides={
            "ingest.payload_bytes": 50,
            "ingest.payload_depth": 2,
            "ingest.batch_events": 1,
            "ingest.future_limit_s": 60,
            "ingest.internal_types": ("heartbeat",),
        },
    )
    async with Memory(database.server_dsn, settings) as memory, serving(memory, settings) as served:
        schemas = {tool["name"]: tool["inputSchema"]["properties"] for tool in await listed(served)}
        assert schemas["myria_append_events"]["events"]["maxItems"] == 1
        assert "50 bytes" in schemas["myria_append_event"]["payload"]["description"]
        for code, name, arguments in (
            ("payload_too_large", "append_event", event(payload={"text": "x" * 50})),
            ("payload_too_deep", "append_event", event(payload={"a": {"b": {}}})),
            ("invalid_timestamp", "append_event", event(timestamp="9999-01-01T00:00:00Z")),
            ("batch_too_large", "append_events", {"events": [event()] * 2}),
        ):
            assert (await served.call(name, arguments)).code == code
        await served.call("append_event", event(payload={"text": "beat"}, type="heartbeat"))
        assert (await served.call("query_event_nodes", ASKED)).content["counts"]["events"] == 0
        seen = await served.call("query_event_nodes", ASKED | {"include_internal": True})
        assert seen.content["root"]["children"][0]["internal"] is True
