"""A conversation with a model that may only call tools: typed arguments in, fenced results back, bounded repairs.

Both kinds of structure yield the same validated arguments. With `tools`, the provider's tool calls are read; with
`json_schema`, a JSON object {"tool", "arguments"}. The model is told what cannot be used, and may try again as often as
its repairs allow.
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
"""How a model names what it was shown: e1, t4. The limit exceeds any real alias, so that a wrong one can be quoted."""


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
    """Limits the published schema for one prompt, for example to the ids that it shows."""

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
        self._recorded_messages = 0
        self.repairs = 0
        self._extra = self._structure_fields()

    def say(self, instruction: str, data: Any) -> None:
        """Add a message: an instruction of ours, and data in a fence."""
        self._messages.append({"role": "user", "content": f"{instruction}\n{fenced(data)}"})

    async def turn(self) -> list[Call]:
        """Get the next reply, and return the tool calls in it: at least one.

        A reply that cannot be used costs one repair; the model is told why, and asked again.

        Raises:
            ModelFailed: no usable reply came within the repairs and the budget.
        """
        while True:
            self._meter.begin_round()
            completion = await self._complete()
            calls: tuple[Called, ...] = ()
            try:
                calls = self._raw_calls(completion)
                validated = [self._validated(call) for call in calls]
            except ModelFailed as failure:
                self._recorder.refused(kind_of(failure).value, failure.message)
                self.repair(failure)
                self._add_reply(completion, calls)
                self._tell_failure(calls, failure)
            else:
                self._add_reply(completion, calls)
                return validated

    def repair(self, failure: ModelFailed) -> None:
        """Use up one repair.

        Raises:
            ModelFailed: `failure` itself, if no repair is left or another try cannot mend it.
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
        self._add_result(call.call_id, call.name, fenced(result))

    def refuse(self, call: Call, failure: ModelFailed, *, details: Any = None) -> None:
        """Tell the model that its call was not done, and why; uses up one repair.

        Raises:
            ModelFailed: `failure` itself, when no repair is left.
        """
        kind = kind_of(failure).value
        self._recorder.tool(call.name, call.text, size=0, statements=(), outcome=kind)
        self.repair(failure)
        self._add_result(call.call_id, call.name, fenced({"refused": failure.message, "details": details}))

    def skip(self, call: Call) -> None:
        """Leave a call undone at no cost, because another call of the same reply was refused or ended the turn."""
        self._add_result(call.call_id, call.name, fenced({"refused": "not done"}))

    async def _complete(self) -> Completion:
        new_messages, self._recorded_messages = self._messages[self._recorded_messages :], len(self._messages)
        round_ = self._meter.rounds

        async def observe(attempt: Attempt) -> None:
            self._recorder.call(round_, attempt, new_messages)

        return await self._provider.complete(self._messages, meter=self._meter, observer=observe, extra=self._extra)

    def _raw_calls(self, completion: Completion) -> tuple[Called, ...]:
        """Return the tool calls of a reply, not validated yet.

        Raises:
            ModelFailed: the reply is refused, filtered, cut off, empty, or no tool call.
        """
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
            document = orjson.loads(_without_fence(text))
        except orjson.JSONDecodeError as error:
            raise failed(Kind.MALFORMED_ARGUMENTS, f"the reply is not JSON: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("tool"), str):
            raise failed(Kind.SCHEMA, 'the reply must be an object {"tool": ..., "arguments": {...}}')
        arguments = orjson.dumps(document.get("arguments", {})).decode()
        return (Called(call_id="", name=document["tool"], arguments=arguments),)

    def _validated(self, call: Called) -> Call:
        """Return a tool call with validated arguments.

        Raises:
            ModelFailed: unknown_tool, malformed_arguments or schema.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            raise failed(Kind.UNKNOWN_TOOL, f"there is no such tool; there are {', '.join(self._tools)}")
        try:
            document = orjson.loads(call.arguments or "{}")
        except orjson.JSONDecodeError as error:
            raise failed(Kind.MALFORMED_ARGUMENTS, f"the arguments of {tool.name} are not JSON: {error}") from None
        try:
            # The provider knows our key, so its reply may quote the key; redact it before it gets into a label.
            arguments = tool.arguments.model_validate(self._provider.redactor.value(document))
        except ValidationError as error:
            raise failed(Kind.SCHEMA, f"the arguments of {tool.name} are wrong: {_problems(error)}") from None
        return Call(call_id=call.call_id, name=tool.name, arguments=arguments, text=call.arguments)

    def _add_reply(self, completion: Completion, calls: Sequence[Called]) -> None:
        """Add the model's reply to the messages, so that results can refer to it."""
        if self._as_tools and calls:
            tool_calls = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
            self._messages.append({"role": "assistant", "content": None, "tool_calls": tool_calls})
        else:
            self._messages.append({"role": "assistant", "content": completion.text[:_QUOTED]})

    def _tell_failure(self, calls: Sequence[Called], failure: ModelFailed) -> None:
        """Tell the model why its reply could not be used; each tool call needs an answer of its own."""
        refusal = fenced({"refused": failure.message})
        if self._as_tools and calls:
            for call in calls:
                self._add_result(call.call_id, call.name, refusal)
        else:
            self._messages.append({"role": "user", "content": f"That could not be used.\n{refusal}"})

    def _add_result(self, call_id: str, name: str, content: str) -> None:
        if self._as_tools:
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
        else:
            self._messages.append({"role": "user", "content": f"Result of {name}:\n{content}"})

    def _structure_fields(self) -> Json:
        """Return the request fields that make the model call tools only: `tools`, or a JSON schema of all calls."""
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
            # None removes these fields of the template from the request.
            "tools": None,
            "tool_choice": None,
        }


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    parts = [
        f"{'.'.join(str(part)[:40] for part in problem['loc'])}: {problem['msg']}" for problem in problems[:_PROBLEMS]
    ]
    return "; ".join(parts)[:1000]


def _without_fence(text: str) -> str:
    """Return a reply without the Markdown fence that small models often put around JSON."""
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3]
    return text
