"""A model that says what it was told to, in the three dialects in which hosts of agents ask one.

It calls the tool whose name ends in `remember` where one is offered and has not answered yet, and then says its answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

KEPT = {"content": "The kiln fires at 1220 degrees.", "type": "fact"}
"""With what the tool is called."""

ANSWER = "Noted."
TOOL = "remember"


class ScriptedModel(ThreadingHTTPServer):
    """Serves the Messages API, the Responses API and Gemini's; `asked` has the bodies of the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[Json] = []

    @property
    def url(self) -> str:
        """Where it is served."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    """Serve a model for the block."""
    with ScriptedModel() as model:
        thread = threading.Thread(target=model.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedModel
    # HTTP/1.0: each connection ends with its answer, so that no thread outlives the test.

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._send("application/json", "")

    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"data": [], "models": []}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        self.server.asked.append(body)
        if self.path.endswith("/responses"):
            self._events(_responses(body), named=True)
        elif "/messages" in self.path and "count_tokens" not in self.path:
            self._events(_messages(body), named=True)
        elif "streamGenerateContent" in self.path:
            self._events([_gemini(body)], named=False)
        elif "generateContent" in self.path:
            self._send("application/json", json.dumps(_gemini(body)))
        else:
            self._send("application/json", json.dumps({"input_tokens": 1, "totalTokens": 1}))

    def _events(self, events: list[Json], *, named: bool) -> None:
        names = [f"event: {event['type']}\n" if named else "" for event in events]
        lines = (f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(names, events, strict=True))
        self._send("text/event-stream", "".join(lines))

    def _send(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _named(names: list[str]) -> str | None:
    """Return the tool that is to be called."""
    return next((name for name in names if name.endswith(TOOL) and not name.endswith(f"batch_{TOOL}")), None)


def _messages(body: Json) -> list[Json]:
    tool = _named([one["name"] for one in body.get("tools", ())])
    message: Json = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": body.get("model")}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    block: Json = {"type": "text", "text": ""}
    delta: Json = {"type": "text_delta", "text": ANSWER}
    if tool is not None and '"tool_result"' not in json.dumps(body["messages"][-1]):
        block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(KEPT)}
    reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
    ended: Json = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        ended | {"usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _responses(body: Json) -> list[Json]:
    tools = body.get("tools", ())
    spaces = {one["name"]: _named([inner["name"] for inner in one["tools"]]) for one in tools if "tools" in one}
    space, tool = next(((space, name) for space, name in spaces.items() if name), (None, None))
    item: Json = {"type": "message", "id": "msg_1", "role": "assistant"}
    item["content"] = [{"type": "output_text", "text": ANSWER}]
    if tool is not None and not any(one.get("type") == "function_call_output" for one in body["input"]):
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "namespace": space, "name": tool}
        item["arguments"] = json.dumps(KEPT)
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage | {"total_tokens": 2}}},
    ]


def _gemini(body: Json) -> Json:
    tool = _named([one["name"] for group in body.get("tools", ()) for one in group.get("functionDeclarations", ())])
    part: Json = {"text": ANSWER}
    if tool is not None and '"functionResponse"' not in json.dumps(body["contents"][-1]):
        part = {"functionCall": {"name": tool, "args": KEPT}}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
