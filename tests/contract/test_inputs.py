"""Queries and commands: what they take, how arguments are read, how refusals read."""

from __future__ import annotations

from typing import Any

import pytest

from myria.access.principal import local_principal
from myria.errors import MyriaError
from myria.log.masks import Mask, Masks
from myria.log.payloads import TopicHint
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria_server.api.core import inputs
from myria_server.api.core.inputs import read
from myria_server.api.memento import input_schemas as agent

ASKED = {"participants": ["user_42", "agent_1"]}

ANYBODY = local_principal("default")


def refusal(model: type[inputs.Input], arguments: Any) -> MyriaError:
    """Return how arguments are refused."""
    with pytest.raises(MyriaError) as caught:
        read(model, arguments)
    return caught.value


def test_a_query_has_sane_defaults() -> None:
    """Participants alone ask for the most recent 20 events."""
    query = read(inputs.EventNodesInput, ASKED).query_value(ANYBODY)
    assert query == EventNodesQuery(participants=("agent_1", "user_42"), limit=20, order="relevance")
    references = read(inputs.ReferencesInput, ASKED).query_value(ANYBODY)
    assert references == ReferencesQuery(participants=("agent_1", "user_42"), max_nodes=60)


def test_a_full_query_is_read() -> None:
    """Every field arrives as a value of the domain."""
    query = read(
        inputs.ReferencesInput,
        ASKED
        | {
            "query": "memory",
            "topic_hints": ["design", {"hint": "memory", "confidence": 0.5}],
            "context_id": "ctx",
            "channel": "telegram",
            "types": ["b", "a", "a"],
            "since": "1970-01-01T00:00:00Z",
            "until": "1970-01-01T00:00:01Z",
            "include_internal": True,
            "max_nodes": 500.0,
            "max_depth": 3,
            "max_tokens": 1000,
            "root": "top_1",
            "include_payload": True,
            "order": "newest",
            "now": "1970-01-01T00:00:02Z",
            "cursor": "c",
        },
    ).query_value(ANYBODY)
    assert query == ReferencesQuery(
        participants=("agent_1", "user_42"),
        query="memory",
        topic_hints=(TopicHint(hint="design", confidence=1.0), TopicHint(hint="memory", confidence=0.5)),
        context_id="ctx",
        channel="telegram",
        types=("a", "b"),
        since=0,
        until=1_000_000,
        include_internal=True,
        max_nodes=500,
        max_depth=3,
        max_tokens=1000,
        root="top_1",
        include_payload=True,
        order="newest",
        now=2_000_000,
        cursor="c",
    )


def test_masks_are_read_in_place_of_participants() -> None:
    """A list of masks asks for the union of what they see; one that leaves participants out is the caller's own."""
    asked = {"masks": [{"participants": ["b", "a"]}, {"exact": True}, {"participants": ["c"], "exact": None}]}
    query = read(inputs.EventNodesInput, asked).query_value(ANYBODY)
    assert query == EventNodesQuery(masks=Masks.of([Mask(("a", "b")), Mask(("agent", "me"), exact=True), Mask(("c",))]))
    both = read(inputs.ReferencesInput, ASKED | asked)
    with pytest.raises(MyriaError, match="participants or masks, not both"):
        both.query_value(ANYBODY)


def test_blanks_are_as_good_as_absent_in_queries() -> None:
    """Agents fill in every field they see: null, empty text and empty lists mean nothing."""
    blank: dict[str, Any] = ASKED | {
        "query": "",
        "topic_hints": [],
        "masks": [],
        "context_id": "",
        "channel": None,
        "types": [],
        "since": "",
        "until": None,
        "include_internal": None,
        "limit": None,
        "max_tokens": None,
        "order": None,
        "now": "",
        "cursor": "",
    }
    assert read(inputs.EventNodesInput, blank) == read(inputs.EventNodesInput, ASKED)


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"participants": []}, "invalid_participants", "participants"),
        ({"limit": 0}, "invalid_argument", "limit"),
        ({"limit": 201}, "invalid_argument", "limit"),
        ({"limit": -1}, "invalid_argument", "limit"),
        ({"limit": 1.5}, "invalid_argument", "limit"),
        ({"limit": "twenty"}, "invalid_argument", "limit"),
        ({"limit": True}, "invalid_argument", "limit"),
        ({"limit": 2**63}, "invalid_argument", "limit"),
        ({"max_tokens": 0}, "invalid_argument", "max_tokens"),
        ({"order": "best"}, "invalid_argument", "order"),
        ({"include_internal": "yes"}, "invalid_argument", "include_internal"),
        ({"since": "yesterday"}, "invalid_timestamp", "since"),
        ({"now": "2026-01-01T00:00:00"}, "invalid_timestamp", "now"),
        ({"query": ["a"]}, "invalid_argument", "query"),
        ({"query": "a\x00"}, "invalid_text", "query"),
        ({"query": "\ud800"}, "invalid_text", "query"),
        ({"query": "x" * 10_001}, "invalid_text", "query"),
        ({"types": "message"}, "invalid_argument", "types"),
        ({"types": [5]}, "invalid_argument", "types[0]"),
        ({"types": ["t"] * 33}, "invalid_argument", "types"),
        ({"topic_hints": [{"hint": "a", "conf": 1}]}, "unknown_field", "topic_hints[0].conf"),
        ({"cursor": 5}, "invalid_argument", "cursor"),
        ({"cursor": "x" * 20_000}, "invalid_text", "cursor"),
        ({"participant": ["a"]}, "unknown_field", "participant"),
        ({"masks": {"participants": ["a"]}}, "invalid_argument", "masks"),
        ({"masks": [["a"]]}, "invalid_argument", "masks[0]"),
        ({"masks": [{}, {"participants": []}]}, "invalid_participants", "masks[1].participants"),
        ({"masks": [{"exact": "yes"}]}, "invalid_argument", "masks[0].exact"),
        ({"masks": [{"only": True}]}, "unknown_field", "masks[0].only"),
        ({"masks": [{}] * 9}, "invalid_argument", "masks"),
    ],
)
def test_bad_query_fields_are_refused_by_name(changes: dict[str, Any], code: str, field: str) -> None:
    """Every refusal has a stable code and the path of the field."""
    error = refusal(inputs.EventNodesInput, ASKED | changes)
    assert (error.code, error.details["field"]) == (code, field)


def test_since_must_come_before_until() -> None:
    """An empty span is a mistake of the caller."""
    asked = read(inputs.EventNodesInput, ASKED | {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"})
    with pytest.raises(MyriaError) as caught:
        asked.query_value(ANYBODY)
    assert caught.value.details["field"] == "since"


def test_the_two_queries_point_at_each_others_bounds() -> None:
    """limit belongs to events, max_nodes to references; either names the other."""
    assert refusal(inputs.ReferencesInput, ASKED | {"limit": 5}).details["nearest"] == "max_nodes"
    assert refusal(inputs.EventNodesInput, ASKED | {"max_nodes": 5}).details["nearest"] == "limit"


def test_an_unknown_field_wins_over_a_missing_one() -> None:
    """A misspelt required field is reported as a typo, not as missing."""
    error = refusal(inputs.EventNodesInput, {"participans": ["a"]})
    assert (error.code, error.details["nearest"]) == ("unknown_field", "participants")


@pytest.mark.parametrize(
    ("model", "name", "meant"),
    [
        (agent.ForgetInput, "fragmentId", "id"),
        (agent.ForgetInput, "parentId", "id"),
        (agent.LinkInput, "type", "relationType"),
        (agent.RecallInput, "tokenBudjet", "tokenBudget"),
    ],
)
def test_what_is_alike_but_means_something_else_is_not_offered(
    model: type[inputs.Input], name: str, meant: str
) -> None:
    """An id of a note is not the agent's; what is only misspelt is still found by its spelling."""
    assert refusal(model, {name: "x"}).details["nearest"] == meant


@pytest.mark.parametrize("model", [inputs.EventLookupInput, inputs.TopicLookupInput])
def test_look_ups_need_an_id(model: type[inputs.Input]) -> None:
    """And no participants: who calls has some."""
    name = next(iter(model.model_fields))
    assert read(model, {name: "x"}).model_dump()["participants"] is None
    assert refusal(model, {"participants": ["a"]}).details["field"] == name
    assert refusal(model, {name: "", "participants": ["a"]}).code == "invalid_text"


def test_tools_without_arguments_take_none() -> None:
    """An empty object, or nothing at all."""
    read(inputs.NothingInput, None)
    read(inputs.NothingInput, {})
    assert refusal(inputs.NothingInput, {"tenant": "x"}).code == "unknown_field"
    assert refusal(inputs.NothingInput, [1]).code == "invalid_argument"


def test_rolling_back_to_nothing_is_refused() -> None:
    """An empty `to` is a slip: it does not quietly mean the parent."""
    assert refusal(inputs.RollbackInput, {"to": ""}).code == "invalid_text"
    assert read(inputs.RollbackInput, {}).to is None
