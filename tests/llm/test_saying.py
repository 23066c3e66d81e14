"""A provider that refuses is quoted where people look, without credentials and without what it was sent."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest

from myria.llm.saying import said
from myria.llm.secrets import Redactor, Secret
from tests.cli.conftest import call
from tests.llm.conftest import KEY, Configuring, Starting
from tests.llm.provider import Answer, Asked
from tests.support.events import append, conversation
from tests.support.postgres import Database

SENT = orjson.dumps(
    {
        "model": "openai/gpt-nonexistent-2026-11-28-preview",
        "messages": [{"role": "user", "content": "Ana said: the spare key is under the third flower pot."}],
        "tools": [{"type": "function", "function": {"name": "plan", "description": "Divide the events into topics."}}],
    }
)


def shown(body: Any) -> str:
    """Return what is shown of a body."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return said(raw, SENT, Redactor([Secret(f"Bearer {KEY}")]))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "Invalid API Key", "type": "invalid_request_error"}}, "Invalid API Key"),
        ({"error": {"message": "User not found.", "code": 401}}, "User not found."),
        ({"error": "model 'small' not found"}, "model 'small' not found"),
        ({"object": "error", "message": "The model `x` does not exist.", "code": 404}, "The model `x` does not exist."),
        ({"detail": "Unauthorized"}, "Unauthorized"),
        ([{"error": {"code": 400, "message": "API key not valid."}}], "API key not valid."),
        (b"no healthy\n  upstream\n", "no healthy upstream"),
        (b"<html><head><title>403 Forbidden</title></head></html>", "403 Forbidden"),
        (
            {"error": {"message": "openai/gpt-nonexistent-2026-11-28-preview is not a valid model ID"}},
            "openai/gpt-nonexistent-2026-11-28-preview is not a valid model ID",
        ),
        ({"error": {"message": "x" * 1000}}, "x" * 300),
    ],
)
def test_the_words_are_found_in_each_shape(body: Any, words: str) -> None:
    """Of OpenAI, OpenRouter, Ollama, vLLM, FastAPI, Google, a proxy, and a page; on one line, and not without end."""
    assert shown(body) == words


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x1f\x8b\x08\x00\xff\xfe",
        b"<p>an error</p>",
        {"error": {}},
        {"error": 17},
        {"detail": [{"input": "Ana said"}]},
        {"error": {"message": "cannot read 'the SPARE key is under the third flower pot'"}},
        {"error": {"message": "bad content: the spare key\n is under the\tthird flower pot"}},
    ],
)
def test_nothing_is_shown_of_what_says_nothing_or_quotes(body: Any) -> None:
    """What was sent may be what somebody told the memory: words that hold it are left out whole."""
    assert shown(body) == ""


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}",
        "Incorrect API key provided: sk-proj-ab*****************wxyz.",
        "Incorrect API key provided: sk-proj-ab...wxyz.",
        "your api key: ****wxyz is invalid",
        "token ghp_0123456789abcdefghijklmnopqrstuvwxyz refused",
        "upstream https://svc:wxyz-hunter2@gateway/v1 refused",
        "x" * 290 + f" {KEY}",
    ],
)
def test_no_credential_is_shown(text: str) -> None:
    """Neither ours, nor a part of it that the provider shows, nor somebody else's, nor half of one at the cut."""
    words = shown({"error": {"message": text}})
    assert words
    for part in (KEY[:10], "wxyz", "sk-proj", "ghp_0123"):
        assert part not in words


REFUSAL = (
    b'{"error": {"message": "Incorrect API key provided: sk-or-v1-Z*******7wQ9. You can find yours at example.com."}}'
)
TOLD = "the provider answered 401: Incorrect API key provided: *** You can find yours at example.com."


def settings_file(folder: Path, llm: Any) -> Path:
    """Write settings with a model."""
    path = folder / "myria.yaml"
    path.write_text(json.dumps({"llm": {"template": llm.template, "base_url": llm.base_url, "retries": 0}}))
    return path


def test_a_wrong_key_does_not_look_like_success(
    database: Database, provide: Starting, configured: Configuring, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`rebuild`, `status` and the log say degraded, how many units, and what the provider said; also while it rests."""
    caplog.set_level(logging.INFO)
    for number in range(8):
        asyncio.run(append(database.server_dsn, conversation(40, seed=number, participants=("ana", f"b{number}"))))
    provider = provide(lambda _: Answer(status=401, body=REFUSAL))
    config = ("--config", settings_file(tmp_path, configured(provider)), "--dsn", database.dsn)

    built = call("rebuild", "--here", "--wait", "--json", *config)
    degraded = built.json["degraded"]
    assert (built.status, degraded["units"]) == (0, degraded["of"])
    assert degraded["units"] > len(provider.asked) == 5
    assert degraded["reason"].endswith(TOLD)

    status = call("status", "--json", *config)
    assert status.json["last_build"]["degraded"] == degraded
    sentence = f"degraded: {degraded['units']} of {degraded['of']} units were planned without the model"
    assert sentence in " ".join(call("status", *config).out.split())
    assert sentence in caplog.text
    assert TOLD in caplog.text
    again = call("rebuild", "--here", "--wait", "--full", "--force", *config)
    assert sentence in " ".join(again.err.split())
    for text in (built.out, built.err, status.out, again.err, caplog.text):
        assert not any(part in text for part in (KEY, "sk-or-v1", "7wQ9"))


def test_an_echo_of_what_was_said_is_shown_to_nobody(
    database: Database, provide: Starting, configured: Configuring, tmp_path: Path
) -> None:
    """A provider that throws the conversation back tells no reader of `status` what others said."""
    asyncio.run(append(database.server_dsn, conversation(40, participants=("ana", "ben"))))

    def echo(asked: Asked) -> Answer:
        return Answer(status=400, body=orjson.dumps({"error": {"message": f"bad input: {asked.texts[-1]}"}}))

    config = ("--config", settings_file(tmp_path, configured(provide(echo))), "--dsn", database.dsn)
    call("rebuild", "--here", "--wait", *config)
    last = call("status", "--json", *config).json["last_build"]
    assert last["degraded"]["reason"].endswith("the provider answered 400")


def test_a_wrong_key_of_embeddings_is_told_too(
    database: Database, provide: Starting, configured: Configuring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build is published without vectors, and says which words refused them."""
    monkeypatch.delenv("MYRIA_EMBEDDINGS_MODEL")  # it would win over the file
    asyncio.run(append(database.server_dsn, conversation(12)))
    llm = configured(provide(lambda _: Answer(status=401, body=REFUSAL)))
    path = tmp_path / "myria.yaml"
    path.write_text(
        json.dumps({"embeddings": {"model": "endpoint", "template": llm.template, "base_url": llm.base_url}})
    )
    built = call("rebuild", "--here", "--wait", "--config", path, "--dsn", database.dsn)
    assert built.status == 0
    words = " ".join(built.err.split())
    assert "succeeded" in words
    assert "vectors wait: " in words
    assert "the endpoint answered 401: Incorrect API key provided: ***" in words
    status = call("status", "--json", "--dsn", database.dsn)
    assert status.json["last_build"]["error"]["code"] == "model_failed"
