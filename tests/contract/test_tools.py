"""The catalogue: every tool of the design, each with schemas that clients can use."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest

from myria.errors import Overloaded
from myria.log.limits import Limits, limits_of
from myria.settings import Settings
from myria_server.api.memento import calls as agent
from myria_server.api.memtrace import answer_schemas as rest
from myria_server.api.tools import TOOLS, Tool, description, input_schema, output_schema
from myria_server.api.turns import handlers as turns

LIMITS = limits_of(Settings())

GOOD: dict[str, dict[str, Any]] = {
    "withdraw_events": {"event_ids": ["evt_1"], "reason": "forgotten"},
    "restore_events": {"event_ids": ["evt_1"]},
    "append_event": {"timestamp": "2026-01-01T00:00:00Z", "channel": "c", "participants": ["a"], "payload": {}},
    "query_event_nodes": {"participants": ["a"], "limit": 5, "topic_hints": ["x", {"hint": "y", "confidence": 1}]},
    "query_references": {"masks": [{"participants": ["a"]}, {"exact": True}], "max_nodes": 5, "order": "newest"},
    "get_event": {"event_id": "evt_1", "participants": ["a"]},
    "get_topic": {"topic_id": "top_1", "participants": ["a"]},
    "publish_snapshot": {"snapshot_id": "snp_1"},
    "discard_snapshot": {"snapshot_id": "snp_1"},
    "abort_build": {"build_id": "bld_1"},
    "decide_notes": {"note_ids": ["note_1"], "decision": "approve"},
    "erase": {"of_participants": ["eva"], "expected_events": 3, "reason": "request 17"},
    "get_erasure_receipt": {"erasure_id": "era_1"},
}
GOOD |= {
    "reflect": {"summary": "A quiet day"},
    "remember": {"content": "c"},
    "batch_remember": {"items": [{"content": "c"}]},
    "recall": {"text": "c", "timeRange": {"from": "2026-01-01T00:00:00Z"}},
    "forget": {"id": "note_1"},
    "restore": {"id": "note_1"},
    "fragment_history": {"id": "note_1"},
    "tool_feedback": {"tool_name": "recall", "relevant": True, "sufficient": True},
    "amend": {"id": "note_1", "content": "c"},
    "link": {"fromId": "note_1", "toId": "note_2"},
    "graph_explore": {"startId": "note_1"},
    "memtrace_remember": {"agent_id": "bot", "content": "c"},
    "memtrace_recall": {"agent_id": "bot"},
    "memtrace_decide": {"agent_id": "bot", "decision": "d", "reasoning": "r"},
    "memtrace_session_create": {"agent_id": "bot"},
    "memtrace_session_context": {"session_id": "s"},
    "memtrace_agent_register": {"name": "bot"},
}
GOOD["append_events"] = {"events": [GOOD["append_event"]]}

tools = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


def keys(value: Any) -> set[str]:
    """Return every key used anywhere in a schema."""
    if isinstance(value, list):
        return set().union(*map(keys, value)) if value else set()
    if isinstance(value, dict):
        return set(value) | (set().union(*map(keys, value.values())) if value else set())
    return set()


def test_the_tools_are_those_of_the_design() -> None:
    """Those of the design in three profiles (§20), three to end builds and pauses, two for withdrawals."""
    assert {(tool.profile, tool.name) for tool in TOOLS if not tool.has_own_name} == {
        ("core", "append_event"),
        ("core", "append_events"),
        ("core", "withdraw_events"),
        ("core", "restore_events"),
        ("core", "query_event_nodes"),
        ("core", "query_references"),
        ("observe", "get_event"),
        ("observe", "get_topic"),
        ("observe", "get_active_snapshot"),
        ("observe", "list_snapshots"),
        ("observe", "get_snapshot_status"),
        ("admin", "trigger_build"),
        ("admin", "abort_build"),
        ("admin", "publish_snapshot"),
        ("admin", "discard_snapshot"),
        ("admin", "rollback"),
        ("admin", "resume_builds"),
        ("observe", "list_held_notes"),
        ("admin", "decide_notes"),
        ("admin", "preview_erasure"),
        ("admin", "erase"),
        ("observe", "get_erasures"),
        ("admin", "get_erasure_receipt"),
    }


@tools
def test_plain_names_suit_every_host(tool: Tool) -> None:
    """Hosts that refuse dots get names of 1..64 letters, digits, _ and -."""
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.plain())
    assert tool.dotted() == (tool.name if tool.has_own_name else f"myria.{tool.name}")


@tools
def test_input_schemas_are_closed_and_simple(tool: Tool) -> None:
    """Valid JSON Schema, closed at the top, without references, and satisfied by good arguments."""
    schema = input_schema(tool, LIMITS)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert not keys(schema) & {"$ref", "$defs", "title"}
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(GOOD.get(tool.name, {}))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(GOOD.get(tool.name, {}) | {"nonsense": 1})


@tools
def test_output_schemas_allow_refusals(tool: Tool) -> None:
    """Clients check structured content even of failed calls: a refusal fits every output schema."""
    schema = output_schema(tool)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    validator = jsonschema.Draft202012Validator(schema)
    refused: dict[str, Any] = {"error": Overloaded("later").to_json()}
    if "agent" in tool.apis:
        refused = agent.refused(Overloaded("later"))
    if "turns" in tool.apis:
        refused = turns.refused(Overloaded("later"))
    if "rest" in tool.apis:
        refused = rest.refused(Overloaded("later"))
    validator.validate(refused)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**refused, "more": 1})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"nonsense": 1})


@tools
def test_every_argument_is_explained(tool: Tool) -> None:
    """A model that reads the schema is told what each field means; on the agent's face names say it, to save tokens."""
    if tool.has_own_name:
        return
    for name, field in input_schema(tool, LIMITS)["properties"].items():
        assert field.get("description"), name


def test_the_limits_that_are_set_are_advertised() -> None:
    """Whoever reads the schemas of appends learns the limits of this server, not the defaults."""
    limits = Limits(payload_bytes=4321, payload_depth=7, batch_events=42, future_seconds=90)
    by_name = {tool.name: tool for tool in TOOLS}
    one = input_schema(by_name["append_event"], limits)
    several = input_schema(by_name["append_events"], limits)["properties"]["events"]
    assert several["maxItems"] == 42
    assert "42 events" in description(by_name["append_events"], limits)
    assert several["items"]["properties"] == {
        name: field for name, field in one["properties"].items() if name != "supersedes"
    }
    for words in ("4321 bytes", "7 levels"):
        assert words in one["properties"]["payload"]["description"]
    assert "90 s ahead" in one["properties"]["timestamp"]["description"]
    assert "ahead" not in input_schema(by_name["append_event"], Limits())["properties"]["timestamp"]["description"]
    assert "{" not in "".join(description(tool, limits) for tool in TOOLS)


def test_deep_trees_are_checked_quickly() -> None:
    """The schema of trees is linear: a deep answer does not blow a client's validator up."""
    tool = next(tool for tool in TOOLS if tool.name == "query_references")
    event = {
        "kind": "event_ref",
        "event_id": "evt_1",
        "event_seq": 1,
        "source_event_key": None,
        "timestamp": "2026-01-01T00:00:00Z",
        "channel": "c",
        "type": None,
        "context_id": None,
        "participants": ["a"],
        "internal": False,
        "score": 1,
        "indexed": True,
        "snippet": "x",
    }
    topic = {
        "topic_id": "top_1",
        "node_id": "00",
        "label": "l",
        "summary": "s",
        "participants": ["a"],
        "first_at": "2026-01-01T00:00:00Z",
        "last_at": "2026-01-01T00:00:00Z",
        "counts": {"events": 1, "leaves": 1},
    }
    node: dict[str, Any] = {"kind": "leaf_topic", "children": [event], **topic}
    for _ in range(30):
        node = {"kind": "internal_topic", "children": [node], **topic}
    answer = {
        "snapshot_id": "snp_1",
        "root": {"kind": "root", "label": "query_result", "participants": ["a"], "children": [node]},
        "constraints": {},
        "truncated": False,
        "next_cursor": None,
        "degraded": False,
        "degraded_reason": None,
        "counts": {"nodes": 33, "events": 1},
    }
    validator = jsonschema.Draft202012Validator(output_schema(tool))
    validator.validate(answer)
    node["children"] = [{**event, "children": []}]
    assert not validator.is_valid(answer)
