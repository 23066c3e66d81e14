"""A conversation with a model that may only call tools: typed arguments in, fenced results back, bounded repairs.

Both ways of structure end in the same: validated arguments. With `tools` the provider's tool calls are read, with
`json_schema` a JSON object {"tool", "arguments"}. What cannot be used is named, and the model is told, as often as
allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from myria.errors import ModelFailed
from myria.llm.audit import Recorder
from myria.llm.budget import Meter
from myria.llm.client import Attempt, Provider
from myria.llm.failures import REPAIRABLE, Kind, failed, kind_of
from myria.llm.fencing import fenced
from myria.llm.wire import Called, Completion

Json = dict[str, Any]

MOST_CALLS = 8
"""Tools that one reply may call."""

_QUOTED = 2_000
_PROBLEMS = 8


Alias = Annotated[str, Field(min_length=1, max_length=40)]
"""How a model names what it was shown: e1, t4. Larger than any alias, so that a wrong one is told and not cut."""


class Arguments(BaseModel):
    """Base of every tool's arguments: strict, and closed."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelTool:
    """One thing the model may do."""

    name: str
    description: str
    arguments: type[Arguments]
    narrowed: Callable[[Json], Json] = lambda schema: schema
    """What makes the published schema tighter for one prompt, such as to the ids that it shows."""

    @property
    def schema(self) -> Json:
        """The JSON schema of its arguments."""
        return self.narrowed(orjson.loads(_schema_of(self.arguments)))


@cache
def _schema_of(arguments: type[Arguments]) -> bytes:
    """Return the JSON schema of a tool's arguments as text: pydantic takes a millisecond to make it."""
    return orjson.dumps(arguments.model_json_schema())


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a tool, its arguments valid; answer it with `Conversation.answer` or `Conversation.refuse`."""

    call_id: str
    name: str
    arguments: Any
    text: str


class Conversation:
    """One workflow's messages, from the first instruction on."""

    def __init__(
        self,
        provider: Provider,
        *,
        structure: Literal["tools", "json_schema"],
        instructions: str,
        tools: Sequence[ModelTool],
        repairs: int,
        meter: Meter,
        recorder: Recorder,
    ) -> None:
        self._provider = provider
        self._as_tools = structure == "tools"
        self._tools = {tool.name: tool for tool in tools}
        self._repairs_left = repairs
        self._meter = meter
        self._recorder = recorder
        self._messages: list[Json] = [{"role": "system", "content": instructions}]
        self._recorded = 0
        self.repairs = 0
        self._extra = self._structure()

    def say(self, instruction: str, data: Any) -> None:
        """Add a message: an instruction of ours, and data in a fence."""
        self._messages.append({"role": "user", "content": f"{instruction}\n{fenced(data)}"})

    async def turn(self) -> list[Call]:
        """Return what the model wants done next: at least one call.

        Raises:
            ModelFailed: nothing usable came within the repairs and the budget.
        """
        while True:
            self._meter.begin_round()
            completion = await self._complete()
            calls: tuple[Called, ...] = ()
            try:
                calls = self._calls(completion)
                read = [self._read(call) for call in calls]
            except ModelFailed as failure:
                self._recorder.refused(kind_of(failure).value, failure.message)
                self.repair(failure)
                self._hear(completion, calls)
                self._correct(calls, failure)
            else:
                self._hear(completion, calls)
                return read

    def repair(self, failure: ModelFailed) -> None:
        """Use one of the repairs up.

        Raises:
            ModelFailed: `failure` itself, when none is left or when it cannot be mended.
        """
        if kind_of(failure) not in REPAIRABLE or self._repairs_left <= 0:
            raise failure
        self._repairs_left -= 1
        self.repairs += 1

    def answer(self, call: Call, result: Any, *, statements: Sequence[str] = ()) -> None:
        """Give a tool's result.

        Raises:
            ModelFailed: budget_bytes.
        """
        size = len(orjson.dumps(result))
        self._recorder.tool(call.name, call.text, size=size, statements=statements)
        self._meter.show(size)
        self._result(call.call_id, call.name, fenced(result))

    def refuse(self, call: Call, failure: ModelFailed, *, details: Any = None) -> None:
        """Tell the model that its call was not done, and why; uses a repair up.

        Raises:
            ModelFailed: `failure` itself, when no repair is left.
        """
        kind = kind_of(failure).value
        self._recorder.tool(call.name, call.text, size=0, statements=(), outcome=kind)
        self.repair(failure)
        self._result(call.call_id, call.name, fenced({"refused": failure.message, "details": details}))

    def skip(self, call: Call) -> None:
        """Leave a call undone without blame: the reply called it beside one that was refused or that ended the turn."""
        self._result(call.call_id, call.name, fenced({"refused": "not done"}))

    async def _complete(self) -> Completion:
        fresh, self._recorded = self._messages[self._recorded :], len(self._messages)
        round_ = self._meter.rounds

        async def observe(attempt: Attempt) -> None:
            self._recorder.call(round_, attempt, fresh)

        return await self._provider.complete(self._messages, meter=self._meter, observer=observe, extra=self._extra)

    def _calls(self, completion: Completion) -> tuple[Called, ...]:
        if completion.refused:
            raise failed(Kind.REFUSAL, "the model refuses")
        if completion.filtered:
            raise failed(Kind.CONTENT_FILTER, "the provider filtered the reply")
        if completion.cut:
            raise failed(Kind.LENGTH, "the reply was cut at its longest length; answer more briefly")
        if self._as_tools:
            if not completion.calls:
                raise failed(Kind.EMPTY_REPLY, "the reply calls no tool; call one")
            if len(completion.calls) > MOST_CALLS:
                raise failed(Kind.SCHEMA, f"the reply calls {len(completion.calls)} tools; call at most {MOST_CALLS}")
            return completion.calls
        text = completion.text.strip()
        if not text:
            raise failed(Kind.EMPTY_REPLY, "the reply is empty")
        try:
            document = orjson.loads(_without_marks(text))
        except orjson.JSONDecodeError as error:
            raise failed(Kind.MALFORMED_ARGUMENTS, f"the reply is not JSON: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("tool"), str):
            raise failed(Kind.SCHEMA, 'the reply must be an object {"tool": ..., "arguments": {...}}')
        arguments = orjson.dumps(document.get("arguments", {})).decode()
        return (Called(call_id="", name=document["tool"], arguments=arguments),)

    def _read(self, call: Called) -> Call:
        tool = self._tools.get(call.name)
        if tool is None:
            raise failed(Kind.UNKNOWN_TOOL, f"there is no such tool; there are {', '.join(self._tools)}")
        try:
            document = orjson.loads(call.arguments or "{}")
        except orjson.JSONDecodeError as error:
            raise failed(Kind.MALFORMED_ARGUMENTS, f"the arguments of {tool.name} are not JSON: {error}") from None
        try:
            # A provider knows our key: what it writes must not carry it into a label.
            arguments = tool.arguments.model_validate(self._provider.redactor.value(document))
        except ValidationError as error:
            raise failed(Kind.SCHEMA, f"the arguments of {tool.name} are wrong: {_problems(error)}") from None
        return Call(call_id=call.call_id, name=tool.name, arguments=arguments, text=call.arguments)

    def _hear(self, completion: Completion, calls: Sequence[Called]) -> None:
        """Keep what the model said in the conversation, so that it can be answered."""
        if self._as_tools and calls:
            tool_calls = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
            self._messages.append({"role": "assistant", "content": None, "tool_calls": tool_calls})
        else:
            self._messages.append({"role": "assistant", "content": completion.text[:_QUOTED]})

    def _correct(self, calls: Sequence[Called], failure: ModelFailed) -> None:
        refusal = fenced({"refused": failure.message})
        if self._as_tools and calls:
            for call in calls:
                self._result(call.call_id, call.name, refusal)
        else:
            self._messages.append({"role": "user", "content": f"That could not be used.\n{refusal}"})

    def _result(self, call_id: str, name: str, content: str) -> None:
        if self._as_tools:
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        else:
            self._messages.append({"role": "user", "content": f"Result of {name}:\n{content}"})

    def _structure(self) -> Json:
        if self._as_tools:
            return {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": tool.name,
                            "description": tool.description,
                            "parameters": tool.schema,
                        },
                    }
                    for tool in self._tools.values()
                ]
            }
        definitions: Json = {}
        choices = []
        for tool in self._tools.values():
            schema = tool.schema
            definitions |= schema.pop("$defs", {})
            choices.append(
                {
                    "type": "object",
                    "description": tool.description,
                    "properties": {"tool": {"const": tool.name}, "arguments": schema},
                    "required": ["tool", "arguments"],
                    "additionalProperties": False,
                }
            )
        schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
        if definitions:
            schema = {**schema, "$defs": definitions}
        return {
            "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}},
            "tools": None,
            "tool_choice": None,
        }


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    parts = [
        f"{'.'.join(str(part)[:40] for part in problem['loc'])}: {problem['msg']}" for problem in problems[:_PROBLEMS]
    ]
    return "; ".join(parts)[:1000]


def _without_marks(text: str) -> str:
    """Return a reply without the Markdown fence that small models like to put around JSON."""
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3]
    return text
