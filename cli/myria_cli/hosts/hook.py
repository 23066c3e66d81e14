"""`myria hook`: what a host runs when a session begins, and after each turn. Quick, and it never breaks the host.

When a session begins, the host gets what the memory knows about the work; after a turn, its messages are appended to
the log, once, even if the host repeats them. The server's address and key come from the host's own list of MCP servers.
An absent server, an unreadable file, an input of another form: each ends the hook with status 0 and one line on
standard error. This module imports next to nothing, since it runs at every turn.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from myria_cli.hosts import jsonc

Json = dict[str, Any]

CONNECT_TIMEOUT_S = 3.0
DEADLINE_S = 8
"""Seconds after which a hook ends, whatever it waits for: hosts wait for ten."""

MOST_INPUT = 4 * 1024 * 1024
MOST_CHARACTERS = 48_000
"""Most characters that are stored of one message."""

CONTEXT_TOKENS = 1_500
CONTEXT_KINDS = ("decision", "preference", "procedure", "error", "fact")
"""Kinds of notes with which a session begins."""

_TRANSCRIPT_BYTES = 4 * 1024 * 1024
"""Bytes at the end of a transcript that are searched for the last turn."""

_STARTS = ("SessionStart", "sessionStart")
_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)\}|\$(\w+)")
"""How hosts name a variable of their environment in a header."""

_OWN_CONTEXT = re.compile(r"\A\s*(?:<hook_context>.*?</hook_context>\s*)+", re.DOTALL)
"""The context that hooks supplied: Gemini CLI puts it before the prompt it reports, with angle brackets escaped."""


class Unusable(Exception):
    """A hook cannot do its work; says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Utterance:
    """One message of a turn. `key` is its permanent, unique name within the host; `at` is RFC 3339."""

    key: str
    speaker: str
    text: str
    at: str


def main(arguments: Sequence[str]) -> int:
    """Run a hook; return 0, whatever happens.

    Args:
        arguments: the host, and where its servers are.
    """
    parser = argparse.ArgumentParser(prog="myria hook", description="What a host runs; `myria connect` sets it up.")
    parser.add_argument("host")
    parser.add_argument("--servers", type=Path, required=True, help="The host's file with its MCP servers.")
    parser.add_argument("--name", default="myria", help="Which of them is the memory.")
    try:
        options = parser.parse_args(arguments)
    except SystemExit:
        return 0
    if hasattr(signal, "setitimer"):  # Windows has none
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    answer: Json = {}
    try:
        event = _parse_event(sys.stdin.buffer.read(MOST_INPUT + 1))
        url, headers = _find_server(options.servers, options.name)
        if event.get("hook_event_name") in _STARTS:
            answer = _session_context(options.host, str(event["hook_event_name"]), url, headers)
        elif utterances := list(_utterances(options.host, event)):
            _append_utterances(
                options.host,
                str(event.get("session_id") or event.get("conversation_id") or ""),
                utterances,
                url,
                headers,
            )
    except Unusable as reason:
        print(f"myria hook: {reason}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - a hook never breaks its host
        print(f"myria hook: {type(error).__name__}", file=sys.stderr)
    if options.host == "cursor" and not answer:
        answer = {"continue": True}
    if answer or options.host == "gemini":
        print(json.dumps(answer, ensure_ascii=False))
    return 0


def _parse_event(raw: bytes) -> Json:
    """Parse the host's JSON input, which must be an object."""
    if len(raw) > MOST_INPUT:
        raise Unusable("the host says more than a hook reads")
    try:
        event = json.loads(raw)
    except ValueError as error:
        raise Unusable("the host says no JSON") from error
    if not isinstance(event, dict):
        raise Unusable("the host says no object")
    return event


def _find_server(file: Path, name: str) -> tuple[str, dict[str, str]]:
    """Return the memory's URL, without the path of a face, and the headers to send, from the host's list of servers."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text) if file.suffix == ".toml" else jsonc.read(text)
    except (OSError, ValueError) as error:
        raise Unusable(f"{file} cannot be read") from error
    groups = [data.get(group) for group in ("mcpServers", "servers", "mcp_servers")] if isinstance(data, dict) else []
    entry = next((group[name] for group in groups if isinstance(group, dict) and name in group), None)
    url = (entry.get("url") or entry.get("httpUrl")) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(url, str):
        raise Unusable(f"{file} names no HTTP server {name}; run `myria connect` again")
    headers = entry.get("headers") or entry.get("http_headers") or {}
    expanded_headers = {
        str(key): _REFERENCE.sub(lambda found: os.environ.get(found[1] or found[2], ""), str(value))
        for key, value in headers.items()
    }
    if variable := entry.get("bearer_token_env_var"):
        expanded_headers["Authorization"] = f"Bearer {os.environ.get(str(variable), '')}"
    return re.sub(r"/mcp(/[a-z]+)?/?$", "", url), expanded_headers


def _call_tool(url: str, face: str, headers: Mapping[str, str], tool: str, arguments: Json) -> Json:
    """Call a tool; return its result."""
    place = urlsplit(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    connection_class = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = connection_class(place.hostname or "", port, timeout=CONNECT_TIMEOUT_S)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    all_headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    try:
        connection.request("POST", f"{place.path}/mcp{face}", json.dumps(body).encode(), all_headers)
        response = connection.getresponse()
        answer = json.loads(response.read(MOST_INPUT))
    except (OSError, ValueError) as error:
        raise Unusable(f"no answer from {place.hostname}:{port}; is `myria up` running?") from error
    finally:
        connection.close()
    result = answer.get("result") if isinstance(answer, dict) else None
    if response.status != 200 or not isinstance(result, dict) or result.get("isError"):
        raise Unusable(f"{tool} was refused ({response.status}): {_refusal_reason(answer)}")
    return result


def _refusal_reason(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    result = answer.get("result") if isinstance(answer, dict) else None
    content = (result.get("structuredContent") or {}) if isinstance(result, dict) else {}
    reason = error or content.get("error") or content
    return str(reason.get("message", "no reason given") if isinstance(reason, dict) else reason)[:300]


def _session_context(host: str, event: str, url: str, headers: Mapping[str, str]) -> Json:
    """Return the hook's answer at the beginning of a session: the memory's context, in the host's format."""
    result = _call_tool(
        url, "/agent", headers, "context", {"tokenBudget": CONTEXT_TOKENS, "types": list(CONTEXT_KINDS)}
    )
    answer = result.get("structuredContent")
    text = str(answer.get("injectionText") or "").strip() if isinstance(answer, dict) else ""
    if not text:
        return {}
    if host == "cursor":
        return {"additional_context": text}
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def _append_utterances(
    host: str, session: str, utterances: Sequence[Utterance], url: str, headers: Mapping[str, str]
) -> None:
    """Append messages to the log; those that are already there stay unchanged."""
    events = [
        {
            "timestamp": utterance.at,
            "channel": host,
            "source_event_key": f"{session}:{utterance.key}"[:500],
            "payload": {"text": utterance.text[:MOST_CHARACTERS], "speaker": utterance.speaker},
            **({"context_id": session[:200]} if session else {}),
        }
        for utterance in utterances
    ]
    _call_tool(url, "", headers, "append_events", {"events": events})


def _utterances(host: str, event: Json) -> Iterator[Utterance]:
    """Yield the messages that an event of the host reports."""
    now = datetime.now(UTC).isoformat()
    name = event.get("hook_event_name")
    turn = str(event.get("turn_id") or event.get("generation_id") or "")
    prompt, reply = event.get("prompt"), event.get("last_assistant_message") or event.get("prompt_response")
    if host == "claude-code" and name == "Stop":
        yield from _last_turn(event, reply, now)
        return
    if host == "cursor" and name == "afterAgentResponse":
        reply = event.get("text")
        turn = f"{turn}-{_digest(reply)}"
    if host == "gemini":
        turn = _digest([event.get("timestamp"), prompt])
        prompt = _OWN_CONTEXT.sub("", prompt) if isinstance(prompt, str) else None
    for end, speaker, text in (("in", "user", prompt), ("out", "assistant", reply)):
        if isinstance(text, str) and text.strip():
            yield Utterance(key=f"{turn or _digest([now, text])}-{end}", speaker=speaker, text=text, at=now)


def _last_turn(event: Json, reply: Any, now: str) -> Iterator[Utterance]:
    """Yield the last turn of a transcript of Claude Code: the user's last message, and the last answer after it.

    `reply`, the answer that the host reports, is preferred: the transcript is written concurrently and may lack it.
    """
    prompt: Json = {}
    question, answer = "", ""
    for line in _lines(event.get("transcript_path")):
        message = line.get("message")
        if line.get("isSidechain") or line.get("isMeta") or not isinstance(message, dict):
            continue
        text = _text_of(message.get("content"))
        if text and line.get("type") == "user":
            prompt, question, answer = line, text, ""
        elif text and line.get("type") == "assistant":
            answer = text
    if isinstance(reply, str) and reply.strip():
        answer = reply.strip()
    turn = str(prompt.get("uuid") or event.get("session_id") or "")
    if question:
        yield Utterance(key=f"{turn}-in", speaker="user", text=question, at=_time_or_now(prompt.get("timestamp"), now))
    if answer:
        yield Utterance(key=f"{turn}-out-{_digest(answer)}", speaker="assistant", text=answer, at=now)


def _time_or_now(time: Any, now: str) -> str:
    """Return a time of the host as RFC 3339, or `now` if it cannot be read or has no zone."""
    try:
        at = datetime.fromisoformat(str(time))
    except ValueError:
        return now
    return now if at.tzinfo is None else at.isoformat()


def _lines(path: Any) -> Iterator[Json]:
    """Yield the objects of the last lines of a transcript."""
    if not isinstance(path, str) or not path:
        return
    try:
        with Path(path).expanduser().open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - _TRANSCRIPT_BYTES)
            file.seek(begin)
            raw = file.read(_TRANSCRIPT_BYTES)
    except OSError:
        return
    for number, line in enumerate(raw.split(b"\n")):
        if begin and not number:
            continue  # reading began within this line
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _text_of(content: Any) -> str:
    """Return the text of a message, without the calls and results of tools."""
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]
