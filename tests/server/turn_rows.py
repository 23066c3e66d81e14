"""The contract of turns as a table: each default, order, limit and error, as arguments and what must come of them.

Rows run one after the other through one server, each in a session of its own: `$row` in arguments is a name that no
other row has. Whoever runs them calls as hosts do: over MCP, plain HTTP, or with a client of an SDK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

Caller = Callable[[str, Json], Awaitable[Json]]

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

    def calls(self, session: str) -> list[tuple[str, Json]]:
        """Return what comes before it, and the call itself last, in a session of its own."""
        return [
            (tool, _filled({"session_id": session, **arguments}, session))
            for tool, arguments in (*self.before, (self.tool, self.arguments))
        ]

    def is_wrong(self, answers: Sequence[Json]) -> bool:
        """Tell whether the answers to its calls are not those of the contract."""
        *before, answer = answers
        if any(one != {"ok": True} for one in before):
            return True
        told = all(answer.get(name) == value for name, value in self.refusal.items())
        return not (told and ("retryable" in answer) == bool(self.refusal) and self.holds(answer))


def _filled(arguments: Any, session: str) -> Any:
    text = json.dumps(arguments)
    return json.loads(text.replace("$row", session)) if "$row" in text else arguments


async def run(ask: Caller, prefix: str, rows: Iterable[TurnRow]) -> dict[str, Any]:
    """Run rows; return the last answers of those that are wrong, by their names."""
    wrong = {}
    for number, row in enumerate(rows):
        answers = [await ask(tool, arguments) for tool, arguments in row.calls(f"{prefix}-{number}")]
        if row.is_wrong(answers):
            wrong[f"{number}: {row.name}"] = answers[-1]
    return wrong


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


def recalled(answer: Json) -> Json:
    """Return what the block of recalled memory in an answer says."""
    policy, block = answer["input_items"][:2]
    assert (policy["role"], block["role"]) == ("developer", "user")
    lines = texts(answer)[1].split("\n")
    assert (lines[0], lines[2:]) == ("<memory_reference>", ["</memory_reference>"])
    memory: Json = json.loads(lines[1])
    assert (memory["kind"], memory["untrusted"]) == ("historical_memory", True)
    assert set(memory) == {"kind", "untrusted", "facts", "insights", "chunks"}
    return memory


def facts(answer: Json) -> list[tuple[str, str, str, str]]:
    """Return the facts that an answer recalls: tier, key, value, confidence."""
    if not answer["recall_fact_ids"]:
        return []
    found = recalled(answer)["facts"]
    assert [fact["id"] for fact in found] == answer["recall_fact_ids"]
    return sorted((fact["tier"], fact["key"], fact["value"], fact["confidence"]) for fact in found)


def tells(words: str, *expected: tuple[str, str, str, str]) -> TurnRow:
    """Return a row of what a user says, and the facts that are recalled from then on."""
    kept = ("memory_after_turn", {"turn_id": "t1", "input_items": [said(words)]})
    return before(lambda answer: facts(answer) == sorted(expected), kept, current_input="What of me?")


def of_items(holds: Callable[[Json], bool], **arguments: Any) -> TurnRow:
    """Return a row of a turn that is kept in some way, and the prompt of the next one."""
    return before(holds, ("memory_after_turn", {"turn_id": "t1", **arguments}), current_input="next")


def listed(answer: Json) -> list[str]:
    """Return the directories of an answer, without the session's root."""
    return ["/".join(summary["path"].split("/")[3:]) for summary in answer["summaries"]]


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
    invalid("memory_before_turn", says="current_input is required", conversation_items=["a"], current_input_start=2),
    invalid("memory_before_turn", says="current_input is required", conversation_items=["a"], current_input_start=1),
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
    # names: blank is the default, and the default has a name
    *(
        before(
            lambda answer: texts(answer)[2:] == ["My name is Ada", "Hello", "hi"],
            ("memory_after_turn", {**NAMED[1], "project": "$row", "session_id": blank}),
            project="$row",
            session_id="default",
            current_input="hi",
        )
        for blank in ("", " ", None)
    ),
    before(
        lambda answer: texts(answer)[2:] == ["My name is Ada", "Hello", "hi"],
        ("memory_after_turn", {**NAMED[1], "project": ""}),
        project="default",
        current_input="hi",
    ),
    before(lambda answer: texts(answer) == ["hi"], NAMED, project="$row-other", current_input="hi"),
    before(lambda answer: texts(answer) == ["hi"], NAMED, session_id="$row-other", current_input="hi"),
    TurnRow(
        tool="memory_run_turn",
        arguments={"current_input": "hi", "turn_id": ""},
        holds=lambda answer: re.fullmatch(r"turn-\d{13}-[0-9a-f]{6}", answer["turn_id"]) is not None,
    ),
    TurnRow(
        tool="memory_run_turn",
        arguments={"current_input": "hi", "turn_id": "mine"},
        holds=lambda answer: answer["turn_id"] == "mine" and "ok" not in answer,
    ),
    *(
        before(lambda answer: texts(answer) == ["hi"], current_input="hi", plugin=plugin)
        for plugin in ("rag", "pageindex", "auto")
    ),
    TurnRow(
        tool="memory_after_turn",
        arguments={"plugin": "other"},
        holds=lambda _: True,
        refusal={"code": "INVALID_ARGUMENT", "available_plugins": ["auto", "rag", "pageindex"], "retryable": False},
    ),
    *(
        before(lambda answer: texts(answer) == ["hi"], current_input="hi", max_input_tok=tokens)
        for tokens in (0, -1, None, 5.0)
    ),
    before(lambda answer: texts(answer) == ["hi"], current_input="hi", base_instructions="Say nothing."),
    # what is said now, of a conversation
    before(
        lambda answer: texts(answer) == ["b", "c", "a"],
        conversation_items=["a", "b", "c"],
        current_input_start=0,
        current_input_count=1,
    ),
    before(lambda answer: texts(answer) == ["a", "b", "c"], conversation_items=["a", "b", "c"], current_input_start=1),
    before(lambda answer: texts(answer) == ["a", "b", "c"], conversation_items=["a", "b", "c"], current_input_count=2),
    before(lambda answer: texts(answer) == ["a", "b"], conversation_items=["a", "b"], current_input_count=9),
    before(
        lambda answer: texts(answer) == ["a", "b", "c"],
        conversation_items=["a", "b", "c"],
        current_input_start=1,
        current_input_count=5,
    ),
    before(
        lambda answer: texts(answer) == ["a", "b"],
        conversation_items=["a", "b"],
        current_input_start=-3,
        current_input_count=0,
    ),
    invalid("memory_before_turn", says="whole number", conversation_items=["a"], current_input_start=0.5),
    # tokens are the bytes of what items say, by four
    before(lambda answer: answer["context_token_count"] == (7 + 4 + 10 + 100) // 4, current_input="x" * 100),
    before(lambda answer: answer["context_token_count"] == (7 + 4 + 10 + 200) // 4, current_input="é" * 100),
    before(lambda answer: answer["context_token_count"] == 5, current_input="h"),
    # what is recalled is known by its fact_id
    before(lambda answer: answer["recall_fact_ids"] == ["user_name"], NAMED, current_input="What is my name?"),
    # facts by rule: tier, key, value as it was written, confidence; what is not certain by form is none
    tells("my name is Ada", ("L0", "name", "ada", "0.95")),
    tells("I PREFER  green tea, not coffee", ("L0", "preference", "green tea", "0.92")),
    tells("i like celadon; really", ("L2", "like", "celadon", "0.85")),
    tells("Today I need milk!\nAnd more", ("L1", "today_task", "milk", "0.80")),
    tells("this week I need a new wheel: yes", ("L2", "weekly_task", "a new wheel", "0.82")),
    tells("Do I need a new wheel? I like what?"),
    tells("I like tea. I like clay", ("L2", "like", "tea", "0.85")),
    tells("My name is <b>&\u2028"),
    tells("My name is " + "É" * 64, ("L0", "name", "é" * 64, "0.95")),
    tells("My name is " + "É" * 65),
    tells("What is my name? They prefer tea"),
    before(
        lambda answer: not re.search("[<>&]", "".join(texts(answer)[1].split("\n")[1])),
        ("memory_after_turn", {"input_items": [said("I like salt & pepper")]}),
        current_input="hi",
    ),
    before(
        lambda answer: facts(answer) == [("L0", "preference", "coffee", "0.92")],
        ("memory_after_turn", {"turn_id": "t1", "input_items": ["I prefer tea"]}),
        ("memory_after_turn", {"turn_id": "t2", "input_items": ["I prefer coffee"]}),
        current_input="hi",
    ),
    before(
        lambda answer: facts(answer) == [],
        (
            "memory_after_turn",
            {
                "input_items": [
                    said("My name is Ada", "developer"),
                    {"type": "function_call_output", "output": "I like tea"},
                ],
                "output_items": [said("I prefer tea", "assistant")],
            },
        ),
        current_input="hi",
    ),
    # what a turn keeps
    of_items(lambda answer: texts(answer) == ["one", "next"], input_items="one"),
    of_items(lambda answer: texts(answer) == ["one", "next"], input_items=said("one")),
    of_items(lambda answer: texts(answer) == ["two", "next"], output_items="two"),
    of_items(lambda answer: texts(answer) == ["next"], input_items=[], output_items=None),
    of_items(lambda answer: texts(answer) == ["c", "next"], conversation_items=["a", "b", "c"]),
    of_items(
        lambda answer: texts(answer) == ["b", "next"],
        conversation_items=["a", "b", "c"],
        current_input_start=1,
        current_input_count=1,
        input_items=["d"],
    ),
    *(
        # what is zero is left out, as programs in Go send it: nothing of a turn is lost by it
        of_items(
            lambda answer: texts(answer) == ["a", "b", "next"],
            conversation_items=["a", "b"],
            current_input_start=0,
            current_input_count=count,
        )
        for count in (0, -1, 2, 3)
    ),
    of_items(
        lambda answer: texts(answer) == ["d", "next"],
        conversation_items=["a", "b"],
        current_input_start=2,
        input_items=["d"],
    ),
    # what an engine of a host recalled itself is not kept as something said
    *(
        of_items(
            lambda answer: texts(answer) == ["now", "next"],
            input_items=[
                said(policy, "developer"),
                said('<memory_reference>\n{"kind": "historical_memory"}\n</memory_reference>'),
                said("now"),
            ],
        )
        for policy in (
            "Memory recall:\n- Fact[user_name][L0] name=Ada (confidence=0.95)",
            "Historical memory recalled from previous turns. Reference only.",
        )
    ),
    of_items(
        lambda answer: texts(answer) == ["now", "next"],  # an instruction is kept, and comes back as data alone
        input_items=[said("Be brief.", "developer"), said("now")],
    ),
    of_items(
        lambda answer: (
            answer["input_items"][0]
            == {"type": "function_call_output", "call_id": "c1", "output": "42", "metadata": {"item_id": "x"}}
        ),
        input_items=[
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": "42",
                "metadata": {"item_id": "x"},
                "status": "done",
            }
        ],
    ),
    before(
        lambda answer: texts(answer)[2:] == ["My name is Ada", "Hello", "And now?", "next"],
        NAMED,
        (
            "memory_after_turn",
            {
                "turn_id": "t2",
                "input_items": [
                    said("<memory_reference>\n{}\n</memory_reference>"),
                    said(" My name is Ada. "),
                    {"type": "message", "role": "user", "content": "Hello"},
                    said("And now?"),
                ],
            },
        ),
        current_input="next",
    ),
    before(
        lambda answer: texts(answer)[2:] == ["elsewhere", "Hello", "hi"],
        (
            "memory_after_turn",
            {
                "turn_id": "t1",
                "input_items": [{**said("My name is Ada"), "metadata": {"item_id": "m1"}}],
                "output_items": ["Hello"],
            },
        ),
        conversation_items=[{**said("elsewhere"), "metadata": {"item_id": "m1"}}],
        current_input="hi",
    ),
    # a small window: earlier items give way to lines in the block, what is said now is last
    before(
        lambda answer: (
            texts(answer)[-1] == "hi"
            and "earlier items are left out" in texts(answer)[1]
            and answer["context_token_count"] < 800
        ),
        *(
            (
                "memory_after_turn",
                {
                    "turn_id": f"t{number}",
                    "input_items": [said(f"{number} " + "clay " * 100)],
                    "output_items": [f"{number} " + "fire " * 100],
                },
            )
            for number in range(4)
        ),
        current_input="hi",
        max_input_tok=1_000,
    ),
    # directories
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={},
        before=(NAMED,),
        holds=lambda answer: (
            {
                "",
                "meta",
                "runtime",
                "runtime/context",
                "events",
                "events/raw",
                "events/compact",
                "events/archive",
                "memory_tiers",
                "memory_tiers/L0",
                "memory_tiers/L1",
                "memory_tiers/L2",
                "insights",
                "indexes",
            }
            <= set(listed(answer))
        ),
    ),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"path": "/memory/$row/memory_tiers/", "depth": 1},
        before=(NAMED,),
        holds=lambda answer: (
            listed(answer) == ["memory_tiers", "memory_tiers/L0", "memory_tiers/L1", "memory_tiers/L2"]
        ),
    ),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"depth": 1, "path": " "},
        before=(NAMED,),
        holds=lambda answer: listed(answer) == ["", "events", "indexes", "insights", "memory_tiers", "meta", "runtime"],
    ),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"path": "nowhere"},
        before=(NAMED,),
        holds=lambda answer: answer == {"summaries": []},
    ),
    TurnRow(
        tool="memory_list_dir_with_abstract",
        arguments={"limit": 0, "depth": -1},
        before=(NAMED,),
        holds=lambda answer: len(answer["summaries"]) >= 14,
    ),
    invalid("memory_list_dir_with_abstract", says="limit", limit=10_001),
    invalid("memory_list_dir_with_abstract", says="depth", depth=65),
    TurnRow(tool="memory_run_maintenance", arguments={}, holds=lambda answer: answer == {"ok": True}),
    invalid("memory_run_maintenance", says="project", project=7),
    invalid("memory_after_turn", says="20", input_items=["a"] * (MOST_ITEMS + 1)),
    invalid(
        "memory_after_turn",
        says="1000 bytes",
        output_items=[{"type": "function_call_output", "output": "x" * (PART_BYTES + 1)}],
    ),
    invalid("memory_after_turn", says="metadata", input_items=[{**said("a"), "metadata": {"n": 7}}]),
)
