"""The request template, and the secrets in it."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import orjson
import pytest

from myria.errors import ConfigurationError
from myria.llm.secrets import Redactor, Secret
from myria.llm.template import RequestTemplate
from myria.settings import LlmSettings

TEMPLATE: dict[str, Any] = {
    "model": "nvidia/nemotron-3-super-120b-a12b:free",
    "provider": {"sort": "throughput", "order": ["a", "b"]},
    "temperature": 1.0,
    "top_p": 0.95,
    "response_format": {"type": "json_object"},
    "tools": [],
    "tool_choice": "auto",
    "usage": {"include": True},
    "headers": {"Authorization": "Bearer ${KEY}", "HTTP-Referer": "http://localhost", "X-Title": "myria"},
}
KEY = "sk-or-v1-0123456789abcdef"


def _load(tmp_path: Path, document: Any, **environ: str) -> RequestTemplate:
    path = tmp_path / "template.json"
    path.write_bytes(document if isinstance(document, bytes) else orjson.dumps(document))
    return RequestTemplate.load(path, environ)


def test_the_template_of_the_design_is_taken_as_it_stands(tmp_path: Path) -> None:
    """Unknown fields are kept, headers leave the body, and what belongs to a call is put in."""
    template = _load(tmp_path, TEMPLATE, KEY=KEY)

    body = template.request([{"role": "user", "content": "hi"}], most_output_tokens=100, tool_choice="required")

    assert template.model == TEMPLATE["model"]
    assert body["provider"] == TEMPLATE["provider"]
    assert body["usage"] == {"include": True}
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["max_tokens"] == 100
    assert body["tool_choice"] == "required"
    assert "headers" not in body
    assert template.headers["Authorization"].reveal() == f"Bearer {KEY}"
    assert KEY not in orjson.dumps(body).decode()


def test_a_smaller_limit_of_the_template_counts(tmp_path: Path) -> None:
    """max_tokens of the template bounds each call; so does max_completion_tokens, under its own name."""
    small = _load(tmp_path, {"model": "m", "max_tokens": 50})
    other = _load(tmp_path, {"model": "m", "max_completion_tokens": 900})

    assert small.request([], most_output_tokens=100)["max_tokens"] == 50
    assert other.request([], most_output_tokens=100)["max_completion_tokens"] == 100
    assert "max_tokens" not in other.request([], most_output_tokens=100)


def test_placeholders_come_from_the_environment_and_from_mounted_files(tmp_path: Path) -> None:
    """`${NAME}` and `${file:/path}` are filled anywhere in a text; a file's last line break does not count."""
    (tmp_path / "key").write_text(KEY + "\n")
    template = _load(
        tmp_path,
        {"model": "${MODEL}", "user": "u-${USER_ID}", "headers": {"X-Api-Key": f"${{file:{tmp_path}/key}}"}},
        MODEL="small",
        USER_ID="4711-0815",
    )

    assert template.model == "small"
    assert template.body["user"] == "u-4711-0815"
    assert template.headers["X-Api-Key"].reveal() == KEY
    assert template.redactor.text(f"{KEY} and 4711-0815") == "*** and ***"


@pytest.mark.parametrize(
    "document",
    [
        b"not json " + KEY.encode(),
        b'{"model": "m", "headers": {"Authorization": "' + KEY.encode() + b'"',
        [KEY],
        {},
        {"model": ""},
        {"model": 3, "api_key": KEY},
        {"model": "m", "messages": [{"role": "system", "content": KEY}]},
        {"model": "m", "tools": [{"x": KEY}]},
        {"model": "m", "stream": True, "api_key": KEY},
        {"model": "m", "n": 2},
        {"model": "m", "max_tokens": 0},
        {"model": "m", "max_tokens": "many"},
        {"model": "m", "headers": [KEY]},
        {"model": "m", "headers": {"Authorization": 3}},
        {"model": "m", "headers": {"Bad Name": KEY}},
        {"model": "m", "headers": {"Content-Length": "3"}},
        {"model": "m", "headers": {"Authorization": f"{KEY}\r\nX-Other: 1"}},
        {"model": "m", "headers": {"Authorization": f"{KEY}\u2028"}},
        {"model": "m", "headers": {"Authorization": "Bearer ${MISSING}"}},
        {"model": "m", "headers": {"Authorization": "Bearer ${not a name}"}},
        {"model": "m", "headers": {"Authorization": "Bearer ${file:/nowhere/at/all}"}},
    ],
)
def test_what_cannot_be_sent_is_refused_at_start_without_quoting_it(tmp_path: Path, document: Any) -> None:
    """Each mistake in a template is a configuration error that names the file and shows nothing of it."""
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, document)
    assert "template.json" in caught.value.message
    assert KEY not in repr(caught.value) + caught.value.message + str(caught.value.to_json())
    assert KEY not in repr(caught.value.__cause__)


def test_a_template_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A path that leads nowhere is an error at start, not at the first build."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        RequestTemplate.load(tmp_path / "none.json", {})


@pytest.mark.parametrize("url", ["ftp://x", "http://user:pass@host/v1", "https://host/v1?key=abc", "host/v1", ""])
def test_a_base_url_carries_no_credentials(url: str) -> None:
    """User, password and query are refused, and the refusal does not repeat them."""
    with pytest.raises(ConfigurationError) as caught:
        LlmSettings(base_url=url)
    assert "pass" not in caught.value.message.replace("password", "")


def test_a_secret_shows_itself_nowhere() -> None:
    """repr, str, format, JSON, logging and pickle give nothing away."""
    secret = Secret(KEY)

    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>20}", repr([secret]), repr({secret})]
    shown.append(json.dumps({"key": secret}, default=str))
    shown.append(logging.makeLogRecord({"msg": "%s", "args": (secret,)}).getMessage())

    assert not any(KEY in text for text in shown)
    with pytest.raises(TypeError):
        orjson.dumps(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize("value", [KEY, 'with "quotes" and \\', "päßwört-ümläut", "a b+c/d=e&f", "x" * 300])
def test_secrets_are_taken_out_of_text_in_every_writing(value: str) -> None:
    """Plain, in JSON (twice), in URLs, in base64 and as a part of a header, a known secret is replaced."""
    import base64
    from urllib.parse import quote, quote_plus

    redactor = Redactor([Secret(f"Bearer {value}")])
    writings = [
        value,
        f"Bearer {value}",
        json.dumps({"k": f"Bearer {value}"}),
        orjson.dumps([f"Bearer {value}"]).decode(),
        quote(f"Bearer {value}"),
        quote_plus(f"Bearer {value}"),
        base64.b64encode(f"Bearer {value}".encode()).decode(),
    ]
    for writing in writings:
        shown = redactor.text(f"before {writing} after")
        assert value not in shown
        assert json.dumps(value)[1:-1] not in shown
        assert "***" in shown
    assert redactor.value({value: [value, 3, None]}) == {"***": ["***", 3, None]} or " " in value
    assert redactor.text("nothing here, bearer of news") == "nothing here, bearer of news"


def test_the_redactor_of_nothing_changes_nothing() -> None:
    """Without secrets, text stays as it is."""
    assert Redactor().text("abc") == "abc"
