"""Turns: what goes into a prompt before each call of a model, and keeping what happened after it.

`Turns` are the two calls themselves. A `Session` works on the message lists that providers take: it puts what memory
knows into them, and keeps the turn when the reply is there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from myria_client._errors import MyriaClientError
from myria_client._styles import (
    ANTHROPIC,
    OPENAI,
    Json,
    Split,
    Style,
    assembled,
    instructions_of,
    replies,
    split,
)

Post = Callable[[str, Json], Json]
AsyncPost = Callable[[str, Json], Awaitable[Json]]
Items = Sequence[Json] | Json | str
System = str | Sequence[Any] | None

_BEFORE, _AFTER = "/v1/turns:before", "/v1/turns:after"


def new_turn_id() -> str:
    """Return an id for a turn. Whoever repeats a call repeats the id."""
    return f"turn-{time.time_ns() // 1_000_000}-{secrets.token_hex(6)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the server gave before a turn.

    `input_items` are for the model, in this order: a policy and recalled memory, earlier items, what is said now.
    `context_token_count` is an estimate of what they cost.
    """

    input_items: list[Json]
    recall_fact_ids: list[str]
    recall_insight_ids: list[str]
    context_token_count: int


def _prepared(answer: Json) -> Prepared:
    return Prepared(
        input_items=answer["input_items"],
        recall_fact_ids=answer["recall_fact_ids"],
        recall_insight_ids=answer["recall_insight_ids"],
        context_token_count=answer["context_token_count"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Whose turn a call is about."""

    session_id: str
    project: str | None
    user_id: str | None

    def body(self, turn_id: str | None = None, **more: Any) -> Json:
        about = {"session_id": self.session_id, "project": self.project, "user_id": self.user_id, "turn_id": turn_id}
        return {name: value for name, value in (about | more).items() if value is not None}


def _before(names: _Names, current: Items, history: Sequence[Json], max_input_tok: int | None) -> Json:
    items: list[Any] = [current] if isinstance(current, str | dict) else list(current)
    if not history:
        return names.body(current_input=items, max_input_tok=max_input_tok)
    return names.body(
        conversation_items=[*history, *items],
        current_input_start=len(history),
        current_input_count=len(items),
        max_input_tok=max_input_tok,
    )


def _after(names: _Names, turn_id: str, current: Items, output: Items) -> Json:
    items: list[Any] = [current] if isinstance(current, str | dict) else list(current)
    said = {"conversation_items": items, "current_input_start": 0, "current_input_count": len(items)} if items else {}
    output = [{"role": "assistant", "content": output}] if isinstance(output, str) else output
    return names.body(turn_id, output_items=[output] if isinstance(output, dict) else list(output), **said)


class Turns:
    """The calls of turns.

    Args:
        post: sends a body to a path and returns the answer's.
    """

    def __init__(self, post: Post) -> None:
        self._post = post

    def session(self, session_id: str, *, project: str | None = None, user_id: str | None = None) -> Session:
        """Return a session: its turns follow each other, and nothing that is said in it is recalled in another."""
        return Session(self._post, _Names(session_id=session_id, project=project, user_id=user_id))


class AsyncTurns:
    """The calls of turns, awaited; see `Turns`."""

    def __init__(self, post: AsyncPost) -> None:
        self._post = post

    def session(self, session_id: str, *, project: str | None = None, user_id: str | None = None) -> AsyncSession:
        """Return a session; see `Turns.session`."""
        return AsyncSession(self._post, _Names(session_id=session_id, project=project, user_id=user_id))


class Session:
    """One session of turns; `Turns.session` makes it."""

    def __init__(self, post: Post, names: _Names) -> None:
        self._post = post
        self._names = names

    def before(self, current: Items, *, history: Sequence[Json] = (), max_input_tok: int | None = None) -> Prepared:
        """Return what goes into the prompt.

        Args:
            current: what is said now: items, one, or a text.
            history: the conversation before it, where the caller has it; left out, the server's last items stand in.
            max_input_tok: what the model takes; earlier items give way to a summary where they would be too many.

        Raises:
            Refused, Busy, Unreachable.
        """
        return _prepared(self._post(_BEFORE, _before(self._names, current, history, max_input_tok)))

    def after(self, turn_id: str, current: Items, output: Items) -> None:
        """Keep a turn, once: a repeat changes nothing.

        Args:
            current: what was said, without the context before it.
            output: what came out of the model; a text is the assistant's.

        Raises:
            Refused, Busy, Unreachable.
        """
        self._post(_AFTER, _after(self._names, turn_id, current, output))

    def openai(self, messages: Sequence[Any], *, max_input_tok: int | None = None, required: bool = True) -> Turn:
        """Begin a turn with messages as OpenAI's chat completions take them.

        Args:
            messages: system messages are passed on, and not kept; what comes after the last one of the assistant is
                said now.
            max_input_tok: what the model takes.
            required: False lets the turn go on without memory when the server does not answer; `Turn.error` says why.

        Raises:
            Refused, Busy, Unreachable: memory is required and does not answer.
        """
        return self._begin(OPENAI, messages, None, max_input_tok, required=required)

    def anthropic(
        self, messages: Sequence[Any], *, system: System = None, max_input_tok: int | None = None, required: bool = True
    ) -> Turn:
        """Begin a turn with messages as Anthropic's API takes them: `Turn.system` goes beside `Turn.messages`.

        Args:
            system: your own system prompt, a text or blocks: what memory adds comes after it.
                The rest is as in `openai`.
        """
        return self._begin(ANTHROPIC, messages, system, max_input_tok, required=required)

    def _begin(
        self, style: Style, messages: Sequence[Any], system: System, max_input_tok: int | None, *, required: bool
    ) -> Turn:
        draft = _Draft(style, messages, system)
        error: MyriaClientError | None = None
        prepared: Prepared | None = None
        try:
            prepared = self.before(draft.current, history=draft.history, max_input_tok=max_input_tok)
        except MyriaClientError as refused:
            if required:
                raise
            error = refused
        return Turn(self, draft, prepared, error, required=required)


class AsyncSession:
    """One session of turns, awaited; see `Session`."""

    def __init__(self, post: AsyncPost, names: _Names) -> None:
        self._post = post
        self._names = names

    async def before(
        self, current: Items, *, history: Sequence[Json] = (), max_input_tok: int | None = None
    ) -> Prepared:
        """Return what goes into the prompt; see `Session.before`."""
        return _prepared(await self._post(_BEFORE, _before(self._names, current, history, max_input_tok)))

    async def after(self, turn_id: str, current: Items, output: Items) -> None:
        """Keep a turn; see `Session.after`."""
        await self._post(_AFTER, _after(self._names, turn_id, current, output))

    async def openai(
        self, messages: Sequence[Any], *, max_input_tok: int | None = None, required: bool = True
    ) -> AsyncTurn:
        """Begin a turn with messages of OpenAI's style; see `Session.openai`."""
        return await self._begin(OPENAI, messages, None, max_input_tok, required=required)

    async def anthropic(
        self, messages: Sequence[Any], *, system: System = None, max_input_tok: int | None = None, required: bool = True
    ) -> AsyncTurn:
        """Begin a turn with messages of Anthropic's style; see `Session.anthropic`."""
        return await self._begin(ANTHROPIC, messages, system, max_input_tok, required=required)

    async def _begin(
        self, style: Style, messages: Sequence[Any], system: System, max_input_tok: int | None, *, required: bool
    ) -> AsyncTurn:
        draft = _Draft(style, messages, system)
        error: MyriaClientError | None = None
        prepared: Prepared | None = None
        try:
            prepared = await self.before(draft.current, history=draft.history, max_input_tok=max_input_tok)
        except MyriaClientError as refused:
            if required:
                raise
            error = refused
        return AsyncTurn(self, draft, prepared, error, required=required)


class _Draft:
    """A message list on its way into a prompt."""

    def __init__(self, style: Style, messages: Sequence[Any], system: System) -> None:
        self.style = style
        self.given = list(messages)
        self.system = system
        self.taken: Split = split(style, messages)
        self.history = self.taken.items(self.taken.history)
        self.current = self.taken.items(self.taken.current)

    def messages(self, prepared: Prepared | None) -> list[Any]:
        if prepared is None:
            return self.given
        return [*self.taken.instructions, *assembled(self.style, self.taken, prepared.input_items)]

    def instructions(self, prepared: Prepared | None) -> Any:
        added = "" if prepared is None or self.style is not ANTHROPIC else instructions_of(prepared.input_items)
        if not added:
            return self.system
        if self.system is None or isinstance(self.system, str):
            return f"{self.system}\n\n{added}" if self.system else added
        return [*self.system, {"type": "text", "text": added}]


class _Begun:
    """What a turn that has begun holds.

    `messages` go to the model, with `system` beside them in Anthropic's style. `error` says why memory took no part,
    where it was not required.
    """

    def __init__(
        self, draft: _Draft, prepared: Prepared | None, error: MyriaClientError | None, *, required: bool
    ) -> None:
        self._draft = draft
        self._required = required
        self.turn_id = new_turn_id()
        self.messages: list[Any] = draft.messages(prepared)
        self.system: Any = draft.instructions(prepared)
        self.fact_ids: list[str] = [] if prepared is None else prepared.recall_fact_ids
        self.insight_ids: list[str] = [] if prepared is None else prepared.recall_insight_ids
        self.tokens: int = 0 if prepared is None else prepared.context_token_count
        self.error = error


class Turn(_Begun):
    """A turn that has begun; `keep` ends it."""

    def __init__(
        self,
        session: Session,
        draft: _Draft,
        prepared: Prepared | None,
        error: MyriaClientError | None,
        *,
        required: bool,
    ) -> None:
        super().__init__(draft, prepared, error, required=required)
        self._session = session

    def keep(self, *given: Any) -> None:
        """Keep the turn, once: a repeat changes nothing.

        Args:
            given: what came out of the model: texts, or messages of the style (for Anthropic, the response itself).

        Raises:
            Refused, Busy, Unreachable: and memory is required; else `error` says it.
        """
        try:
            self._session.after(self.turn_id, self._draft.current, replies(self._draft.style, given))
        except MyriaClientError as refused:
            if self._required:
                raise
            self.error = refused


class AsyncTurn(_Begun):
    """A turn that has begun; `keep` ends it."""

    def __init__(
        self,
        session: AsyncSession,
        draft: _Draft,
        prepared: Prepared | None,
        error: MyriaClientError | None,
        *,
        required: bool,
    ) -> None:
        super().__init__(draft, prepared, error, required=required)
        self._session = session

    async def keep(self, *given: Any) -> None:
        """Keep the turn; see `Turn.keep`."""
        try:
            await self._session.after(self.turn_id, self._draft.current, replies(self._draft.style, given))
        except MyriaClientError as refused:
            if self._required:
                raise
            self.error = refused
