"""The same chat over MCP, with the official SDK (`pip install mcp`): two tools, called before and after each turn.

python examples/turns/chat_mcp.py my-session
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from mcp import Client

Model = Callable[[list[dict[str, Any]]], str]


async def chat(client: Client, session_id: str, model: Model, lines: Iterable[str]) -> AsyncIterator[str]:
    """Yield the model's answer to each line; what was said is remembered, also in a later run."""
    for line in lines:
        turn = {"session_id": session_id, "turn_id": f"chat-{time.time_ns()}"}
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": line}]}
        before = await call(client, "memory_before_turn", {**turn, "current_input": [said]})
        answer = model(before["input_items"])
        reply = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}
        await call(client, "memory_after_turn", {**turn, "input_items": before["input_items"], "output_items": [reply]})
        yield answer


async def call(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool; try again while the server says that this helps."""
    for pause_s in (0.1, 0.5, 2.0, None):
        result = await client.call_tool(tool, arguments)
        content: dict[str, Any] = result.structured_content or {}
        if not result.is_error:
            return content
        if pause_s is None or not content.get("retryable"):
            break
        await asyncio.sleep(pause_s)
    raise RuntimeError(f"{tool}: {content}")


def echo(items: list[dict[str, Any]]) -> str:
    """Stand in for a model: tell what it was given."""
    return "\n".join(f"  {item['role']}: {item['content'][0]['text']}" for item in items)


async def main() -> None:
    """Chat until the input ends."""
    url = os.environ.get("MYRIA_URL", "http://127.0.0.1:8321")
    async with Client(f"{url}/mcp/turns") as client:
        session_id = sys.argv[1] if len(sys.argv) > 1 else "chat"
        async for answer in chat(client, session_id, echo, sys.stdin):
            print(answer, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
