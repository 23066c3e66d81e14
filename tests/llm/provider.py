"""A provider of chat completions that does what a test tells it: it plays somebody else's part, over real HTTP.

A script is a function from what was asked to an answer. Answers can be slow, cut, dripping, hanging, or no HTTP at all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.support.patience import PATIENCE_S

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived; `number` counts from 1."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Json
    raw: bytes

    @property
    def texts(self) -> list[str]:
        """The content of every message."""
        return [str(message.get("content") or "") for message in self.body["messages"]]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that may be called."""
        return [tool["function"]["name"] for tool in self.body.get("tools", [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response. It comes `after_s` seconds later, and once `release` is set; `drip` bytes are sent every `pause_s`;
    after `cut` bytes the connection is closed; `hang` never ends it; `raw` replaces status line, headers and all.
    """

    body: bytes = b"{}"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    release: threading.Event | None = None
    drip: int = 0
    pause_s: float = 0.0
    cut: int | None = None
    hang: bool = False
    raw: bytes | None = None


Script = Callable[[Asked], Answer]


class Provider:
    """The server, in a thread of its own; `asked` is everything it heard."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.errors: list[BaseException] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="provider", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()

    @property
    def url(self) -> str:
        """The base URL."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/v1"

    def close(self) -> None:
        """End it, whatever hangs; a second time does nothing."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(
            number=len(self.asked) + 1,
            path=head[0].split(" ")[1],
            headers=headers,
            body=orjson.loads(raw),
            raw=raw,
        )
        self.asked.append(asked)
        try:
            answer = self.script(asked)
        except Exception as error:  # noqa: BLE001 - shown by the test that asks for it
            self.errors.append(error)
            answer = Answer(status=500, body=b"the script failed")
        return await _send(writer, answer)


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    await asyncio.sleep(answer.after_s)
    while answer.release is not None and not answer.release.is_set():
        await asyncio.sleep(0.01)
    if answer.hang:
        await asyncio.sleep(3600)
    if answer.raw is not None:
        writer.write(answer.raw)
        await writer.drain()
        return False
    fields = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"HTTP/1.1 {answer.status} X\r\n{lines}\r\n".encode("latin-1"))
    body = answer.body if answer.cut is None else answer.body[: answer.cut]
    step = answer.drip or max(1, len(body))
    for at in range(0, len(body), step):
        writer.write(body[at : at + step])
        await writer.drain()
        if answer.drip:
            await asyncio.sleep(answer.pause_s)
    await writer.drain()
    return answer.cut is None


def completion(
    *,
    content: str | None = None,
    calls: Sequence[tuple[str, Any]] = (),
    finish: str = "",
    usage: Any = None,
    **message: Any,
) -> bytes:
    """Return a sound reply: text, or calls of tools as (name, arguments); arguments that are text go as they are."""
    said: Json = {"role": "assistant", "content": content, **message}
    if calls:
        said["tool_calls"] = [
            {
                "id": f"call_{position}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode(),
                },
            }
            for position, (name, arguments) in enumerate(calls)
        ]
    return orjson.dumps(
        {
            "id": "gen-1",
            "object": "chat.completion",
            "model": "scripted",
            "choices": [{"index": 0, "message": said, "finish_reason": finish or ("tool_calls" if calls else "stop")}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "cost": 0.0001} if usage is None else usage,
        }
    )


def calling(asked: Asked, *calls: tuple[str, Any], **more: Any) -> Answer:
    """Return a sound reply that calls tools, in whichever of the two ways was asked for."""
    if "response_format" in asked.body and not asked.body.get("tools"):
        name, arguments = calls[0]
        return Answer(body=completion(content=orjson.dumps({"tool": name, "arguments": arguments}).decode(), **more))
    return Answer(body=completion(calls=calls, **more))
