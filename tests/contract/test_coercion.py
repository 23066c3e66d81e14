"""Arguments as clients really send them: JSON text and 5.0 where the schema allows neither text nor fractions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from myria.errors import MyriaError
from myria.log.limits import Limits
from myria_server.api.coercion import MAX_JSON_TEXT, coerced
from myria_server.api.core import inputs
from myria_server.api.core.inputs import read
from myria_server.api.memento import input_schemas as agent
from myria_server.api.memtrace import schemas as rest
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.schemas import whole_schema
from myria_server.api.tools import TOOLS, Tool, input_schema
from myria_server.api.turns import schemas as turns

MODELS = {tool.arguments for tool in TOOLS} | {
    model for route in ROUTES for model in (*route.body, *((route.query,) if route.query else ()))
}
EXAMPLES = {"array": [], "object": {}, "integer": 5, "number": 0.5, "boolean": True}

every_model = pytest.mark.parametrize("model", sorted(MODELS, key=str))


def properties(schema: Any, where: str = "") -> list[tuple[str, Any]]:
    """Return every property of a schema with its path, those of lists and branches too."""
    found = []
    for name, field in schema.get("properties", {}).items():
        found += [(f"{where}.{name}", field), *properties(field, f"{where}.{name}")]
    for branch in (*schema.get("anyOf", ()), *([schema["items"]] if schema.get("items") else [])):
        found += [(f"{where}[]", branch), *properties(branch, f"{where}[]")]
    return found


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_property_of_every_tool_has_a_type(tool: Tool) -> None:
    """Strict hosts refuse a tool otherwise: nested properties, what lists hold, and branches as well."""
    for where, schema in properties(input_schema(tool, Limits())):
        assert "type" in schema or (where.endswith("[]") and "anyOf" in schema), where


@every_model
def test_each_field_takes_json_text_of_its_type_and_no_other(model: type[BaseModel]) -> None:
    """Where a text may stand, it stays one; where none may, it becomes the value that it is as JSON."""
    for name, schema in whole_schema(model)["properties"].items():
        types = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
        for kind, example in EXAMPLES.items():
            fits = kind in types or (kind == "integer" and "number" in types)
            meant = example if fits and "string" not in types else json.dumps(example)
            assert coerced(model, {name: json.dumps(example)}) == {name: meant}
        if types == {"integer"}:
            (whole,) = coerced(model, {name: 5.0}).values()
            assert type(whole) is int


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text() | JSON.map(json.dumps))
def test_a_text_by_schema_is_never_looked_into(text: str) -> None:
    """Content, questions and what is said stay what they are, whatever they look like."""
    for model, name in (
        (agent.RememberInput, "content"),
        (agent.RecallInput, "text"),
        (inputs.EventNodesInput, "query"),
        (rest.MemoryInput, "content"),
        (turns.BeforeTurnInput, "current_input"),
        (turns.BeforeTurnInput, "current_input_text"),
        (agent.ReflectInput, "summary"),
    ):
        assert coerced(model, {name: text}) == {name: text}


def test_what_lies_in_lists_and_objects_is_read_as_well() -> None:
    """An item of a list, a hint, a mask and a span of time, each written as text in part or whole."""
    note = read(agent.RememberInput, {"content": "x", "keywords": '["a","b"]', "importance": "0.7"})
    assert (note.keywords, note.importance) == (("a", "b"), 0.7)
    recall = read(
        agent.RecallInput,
        {"text": "x", "timeRange": '{"from":"2026-01-01"}', "tokenBudget": "500", "affect": '["calm"]'},
    )
    assert recall.timeRange is not None
    assert (recall.timeRange.since, recall.tokenBudget, recall.affect) == (1767225600000000, 500, ("calm",))
    query = read(
        inputs.EventNodesInput,
        {
            "masks": '[{"participants": ["a"], "exact": "true"}]',
            "topic_hints": ["plain", {"hint": "x", "confidence": "0.5"}],
            "limit": " 5.0 ",
        },
    )
    assert (query.masks[0].exact, query.topic_hints[1].confidence, query.limit) == (True, 0.5, 5)
    batch = read(agent.BatchRememberInput, {"fragments": ['{"content":"x"}'], "stream": "false"})
    assert (batch.fragments, batch.stream) == ([{"content": "x"}], False)
    events = coerced(inputs.EventsInput, {"events": '[{"payload": "{\\"n\\": \\"5\\"}", "internal": "true"}]'})
    assert events == {"events": [{"payload": {"n": "5"}, "internal": True}]}


HOSTILE = [
    "[" * 100_000,
    "[" * 300 + "]" * 300,
    '["a"',
    '["a"] ["b"]',
    "['a']",
    "\ufeff[]",
    "[NaN]",
    "[1e400]",
    '["\ud800"]',
    '[{"a":1,"a":2}]',
    "null",
    "",
    " ",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_that_is_no_strict_json_stays_a_text(text: str) -> None:
    """Duplicates, NaN, depth and half a list are left to the check, which refuses them."""
    assert coerced(agent.RememberInput, {"keywords": text}) == {"keywords": text}


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e400", "5.5", "0x5", "5 6", "true", '"5"', 5.5, 1e300]
)
def test_what_is_no_whole_number_is_none(number: Any) -> None:
    """Neither a fraction nor what no 64 bits hold is rounded, and a truth value is no number."""
    assert coerced(agent.RecallInput, {"pageSize": number}) == {"pageSize": number}
    with pytest.raises(MyriaError):
        read(agent.RecallInput, {"pageSize": number})


@pytest.mark.parametrize("flag", ["yes", "1", "True", "TRUE", 1, 1.0])
def test_a_truth_value_is_true_or_false(flag: Any) -> None:
    """What JSON does not call one is refused, never guessed."""
    with pytest.raises(MyriaError):
        read(agent.ForgetInput, {"id": "note_1", "dryRun": flag})


def test_json_text_of_one_call_is_bounded() -> None:
    """Texts of JSON within a body are read at one go, and beyond the bound they are refused by name."""
    half = json.dumps(["x" * (MAX_JSON_TEXT // 2)])
    with pytest.raises(MyriaError, match=r"(keywords|linkedTo) is JSON as text") as caught:
        coerced(agent.RememberInput, {"keywords": half, "linkedTo": half})
    assert caught.value.details["limit"] == MAX_JSON_TEXT
    said = "x" * MAX_JSON_TEXT * 2
    assert coerced(turns.AfterTurnInput, {"output_items": said}) == {"output_items": said}
