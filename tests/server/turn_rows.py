"""The contract of turns as a table: each default, order, limit and error, as arguments and what must come of them.

Rows run one after the other through one server, each in a session of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

MOST_ITEMS, PART_BYTES = 20, 1_000
"""The limits of the server of the table."""


def said(text: str, role: str = "user") -> Json:
    """Return a message as hosts send it."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def texts(answer: Json) -> list[str]:
    """Return what the items of an answer say."""
    return [
        "".join(part.get("text", "") for part in item.get("content", [])) or item.get("output", "")
        for item in answer["input_items"]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRow:
    """A call of a tool, what comes before it, and what must be true of its answer."""

    tool: str
    arguments: Json
    holds: Callable[[Json], bool]
    before: tuple[tuple[str, Json], ...] = ()
    refusal: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a failure calls it."""
        return f"{self.tool}({str(self.arguments)[:80]})"


def before(holds: Callable[[Json], bool], *calls: tuple[str, Json], **arguments: Any) -> TurnRow:
    """Return a row of memory_before_turn."""
    return TurnRow(tool="memory_before_turn", arguments=arguments, before=calls, holds=holds)


def invalid(tool: str, *, says: str, **arguments: Any) -> TurnRow:
    """Return a row of a call that is wrong."""
    return TurnRow(
        tool=tool,
        arguments=arguments,
        holds=lambda answer: says in answer["message"],
        refusal={"code": "INVALID_ARGUMENT", "retryable": False},
    )


NAMED = ("memory_after_turn", {"turn_id": "t1", "input_items": [said("My name is Ada")], "output_items": ["Hello"]})
ROWS = (
    before(lambda answer: texts(answer) == ["hi"], current_input=[said("hi")]),
    before(lambda answer: texts(answer) == ["hi"], current_input="hi"),
    before(lambda answer: texts(answer) == ["hi"], current_input=said("hi")),
    before(lambda answer: texts(answer) == ["hi"], current_input_text="hi"),
    before(
        lambda answer: (
            (answer["recall_fact_ids"], answer["recall_insight_ids"]) == ([], []) and answer["context_token_count"] > 0
        ),
        current_input="hi",
        project="",
        user_id=" ",
        turn_id=None,
        max_input_tok="",
        plugin="",
        base_instructions="",
        conversation_items=[],
    ),
    before(
        lambda answer: (
            answer["input_items"]
            == [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
        ),
        current_input=[{**said("hi"), "id": "msg_1", "status": "done"}],
    ),
    before(
        lambda answer: texts(answer) == ["a", "b", "c"],
        conversation_items=[said("a"), said("b", "assistant"), said("c")],
    ),
    before(
        lambda answer: texts(answer) == ["c", "a", "b"],
        conversation_items=[said("a"), said("b"), said("c")],
        current_input_start=0,
        current_input_count=2,
    ),
    before(lambda answer: texts(answer) == ["a", "now"], conversation_items=[said("a")], current_input=[said("now")]),
    before(
        lambda answer: (
            texts(answer)[2:] == ["My name is Ada", "Hello", "hi"]
            and answer["input_items"][0]["role"] == "developer"
            and answer["input_items"][1]["role"] == "user"
            and texts(answer)[1].startswith("<memory_reference>\n{")
            and texts(answer)[1].endswith("}\n</memory_reference>")
            and len(answer["recall_fact_ids"]) == 1
        ),
        NAMED,
        current_input="hi",
    ),
    before(
        lambda answer: texts(answer)[2:] == ["mine", "My name is Ada", "Hello", "hi"],
        NAMED,
        conversation_items=[said("mine")],
        current_input="hi",
    ),
    invalid("memory_before_turn", says="current_input is required when conversation_items is empty"),
    invalid("memory_before_turn", says="current_input is required", current_input=[], current_input_text="  "),
    invalid("memory_before_turn", says="plugin", current_input="hi", plugin="other"),
    invalid("memory_before_turn", says="current_input[0]", current_input=[7]),
    invalid("memory_before_turn", says="content[0]", current_input=[{"content": [7]}]),
    invalid("memory_before_turn", says="text", current_input=[{"content": [{"text": 7}]}]),
    invalid("memory_before_turn", says="NUL", current_input="a\0b"),
    invalid("memory_before_turn", says="max_input_tok", current_input="hi", max_input_tok="many"),
    invalid("memory_before_turn", says="within", conversation_items=[said("a")], current_input_start=2),
    invalid("memory_before_turn", says="20", current_input=[said("a")] * (MOST_ITEMS + 1)),
    invalid("memory_before_turn", says="1000 bytes", current_input="é" * PART_BYTES),
    invalid("memory_before_turn", says="unknown field", current_input="hi", query="x"),
    invalid("memory_after_turn", says="output_items", output_items=7),
    invalid("memory_after_turn", says="session_id", session_id="s" * 91),
    invalid("memory_after_turn", says="turn_id", turn_id=7),
    invalid("memory_run_turn", says="operation_token", operation_token="nonsense"),
    invalid("memory_list_dir_with_abstract", says="path", path="../other"),
    invalid("memory_list_dir_with_abstract", says="path", path="/memory/elsewhere"),
    TurnRow(tool="memory_after_turn", arguments={}, holds=lambda answer: answer == {"ok": True}),
    TurnRow(
        tool="memory_after_turn",
        arguments={"turn_id": "t1", "input_items": [said("other")]},
        before=(NAMED,),
        holds=lambda answer: answer == {"ok": True},
    ),
    before(
        lambda answer: texts(answer)[2:] == ["My name is Ada", "Hello", "hi"],
        NAMED,
        ("memory_after_turn", {"turn_id": "t1", "input_items": [said("other")], "output_items": ["more"]}),
        current_input="hi",
    ),
    before(
        lambda answer: texts(answer)[2:] == ["I prefer tea", "Tea it is", "hi"],
        (
            "memory_after_turn",
            {
                "conversation_items": [said("old"), said("older"), said("I prefer tea")],
                "current_input_start": 2,
                "current_input_count": 1,
                "output_items": [said("Tea it is", "assistant")],
            },
        ),
        current_input="hi",
    ),
    TurnRow(tool="memory_run_maintenance", arguments={}, before=(NAMED,), holds=lambda answer: answer == {"ok": True}),
    TurnRow(tool="memory_list_dir_with_abstract", arguments={}, holds=lambda answer: answer == {"summaries": []}),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"path": "", "depth": 0, "limit": None},
        before=(NAMED,),
        holds=lambda answer: (
            answer["summaries"][0]["path"].startswith("/memory/row-")
            and set(answer["summaries"][0]) == {"path", "abstract", "updated_at", "has_overview"}
            and len(answer["summaries"]) >= 14
        ),
    ),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"path": "memory_tiers", "depth": 1},
        before=(NAMED,),
        holds=lambda answer: (
            [summary["path"].split("/", 3)[3] for summary in answer["summaries"]]
            == ["memory_tiers", "memory_tiers/L0", "memory_tiers/L1", "memory_tiers/L2"]
            and "name" in answer["summaries"][1]["abstract"]
        ),
    ),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"limit": 2},
        before=(NAMED,),
        holds=lambda answer: len(answer["summaries"]) == 2,
    ),
)
