"""The request template on disk: everything that is the same in every call, checked when the process starts.

Fields nobody here knows go to the provider as they stand. `headers` become HTTP headers and never a part of the body.
`${NAME}` stands for an environment variable, `${file:/path}` for a mounted file's text, and `${secret:NAME}` for a
secret that is kept sealed (`${secret:TENANT/NAME}` for one of another tenant than `default`), anywhere in a string.
What comes in that way, and the value of every header that may carry a credential, is secret: it is sent, and shown
nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from myria.access.vault import Secrets
from myria.errors import ConfigurationError
from myria.llm.secrets import Redactor, Secret

Json = dict[str, Any]

MOST_BYTES = 256 * 1024

_PLACEHOLDER = re.compile(r"\$\{(file:|secret:)?([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PUBLIC_HEADERS = frozenset({"accept", "content-type", "http-referer", "referer", "user-agent", "x-title"})
_OWN_HEADERS = frozenset(
    {"content-length", "content-type", "accept-encoding", "host", "transfer-encoding", "connection"}
)
_SECRET_FIELD = re.compile(r"(?i)(api|access|private|secret)[-_ ]?key|token$|secret|passw|authorization|credential")


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTemplate:
    """A checked template. `body` is the request without the fields added per call; all `headers` are kept secret."""

    model: str
    body: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, Secret] = field(repr=False)
    secrets: tuple[Secret, ...] = field(repr=False)

    @classmethod
    def load(
        cls, path: str | Path, environ: Mapping[str, str], *, model: str | None = None, secrets: Secrets | None = None
    ) -> RequestTemplate:
        """Read and check the template in a file.

        Args:
            model: replaces the model that the file names.
            secrets: the secrets that the file may refer to; None for none.

        Raises:
            ConfigurationError: the file cannot be read, is no JSON object, lacks a model, has a header or a field
                that cannot be sent, or names a variable, file or secret that is not there. No message quotes the file.
        """
        where = f"The request template {path}"
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{where} cannot be read: {error.strerror}.", field="llm.template") from error
        if len(raw) > MOST_BYTES:
            raise ConfigurationError(f"{where} is larger than {MOST_BYTES} bytes.", field="llm.template")
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            # Not `from error`: it holds the document.
            raise ConfigurationError(
                f"{where} is not JSON (line {error.lineno}, column {error.colno}).", field="llm.template"
            ) from None
        if not isinstance(document, dict):
            raise ConfigurationError(f"{where} must be a JSON object.", field="llm.template")
        if model is not None:
            document["model"] = model
        return cls._of(document, _Filler(environ, secrets or Secrets({}), where), where)

    @classmethod
    def _of(cls, document: Json, filler: _Filler, where: str) -> RequestTemplate:
        headers = _headers(document.pop("headers", {}), filler, where)
        body = filler.filled(document)
        model = body.get("model")
        if not isinstance(model, str) or not model.strip():
            raise _wrong(where, "model", "must name a model")
        for name in ("messages", "tools"):
            if body.get(name, []) != []:
                raise _wrong(where, name, "must be left out or empty: it is put in at each call")
            body.pop(name, None)
        if body.get("stream", False) is not False:
            raise _wrong(where, "stream", "must be false or left out: replies are read whole")
        if body.get("n", 1) != 1:
            raise _wrong(where, "n", "must be 1 or left out")
        for name in ("max_tokens", "max_completion_tokens"):
            if name in body and (type(body[name]) is not int or body[name] < 1):
                raise _wrong(where, name, "must be a positive integer")
        return cls(model=model, body=body, headers=headers, secrets=tuple(filler.secrets))

    @property
    def redactor(self) -> Redactor:
        """A redactor that removes this template's secrets from text."""
        return Redactor(self.secrets)

    def request(self, messages: Sequence[Json], *, most_output_tokens: int, **injected: Any) -> Json:
        """Return the body of one request; `injected` fields replace those of the template, None removes a field."""
        body = {**self.body, "messages": list(messages)}
        limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        body[limit] = min(body.get(limit, most_output_tokens), most_output_tokens)
        for name, field_value in injected.items():
            if field_value is None:
                body.pop(name, None)
            else:
                body[name] = field_value
        return body


class _Filler:
    """Replaces placeholders by their values, and collects the values that must be kept secret."""

    def __init__(self, environ: Mapping[str, str], kept: Secrets, where: str) -> None:
        self._environ = environ
        self._kept = kept
        self._where = where
        self.secrets: list[Secret] = []

    def filled(self, value: Any, name: str = "") -> Any:
        """Return a value of the body with its placeholders filled."""
        if isinstance(value, str):
            text = self.text(value, name, secret=name != "model")
            if _SECRET_FIELD.search(name):
                self.secrets.append(Secret(text))
            return text
        if isinstance(value, dict):
            return {key: self.filled(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.filled(inner, name) for inner in value]
        return value

    def text(self, text: str, name: str, *, secret: bool = True) -> str:
        """Return a text with its placeholders filled."""

        def replaced(match: re.Match[str]) -> str:
            look_up = {"file:": self._file, "secret:": self._secret}.get(match[1] or "", self._variable)
            value = look_up(match[2], name)
            if secret:
                self.secrets.append(Secret(value))
            return value

        return _PLACEHOLDER.sub(replaced, text)

    def _variable(self, variable: str, name: str) -> str:
        if not _VARIABLE.fullmatch(variable):
            raise _wrong(self._where, name, "has a placeholder that is none of ${NAME}, ${file:/path}, ${secret:NAME}")
        value = self._environ.get(variable)
        if not value:
            raise _wrong(self._where, name, f"needs the environment variable {variable}, which is not set")
        return value

    def _secret(self, secret_name: str, name: str) -> str:
        value = self._kept.get(secret_name)
        if value is None:
            raise _wrong(
                self._where, name, f"needs the secret {secret_name[:100]}, which is not there; see `myria secret set`"
            )
        return value

    def _file(self, path: str, name: str) -> str:
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise _wrong(self._where, name, f"names a file that cannot be read: {path}") from error
        if not value:
            raise _wrong(self._where, name, f"names an empty file: {path}")
        return value


def _headers(document: Any, filler: _Filler, where: str) -> dict[str, Secret]:
    if not isinstance(document, dict):
        raise _wrong(where, "headers", "must be an object of texts")
    headers: dict[str, Secret] = {}
    for name, text in document.items():
        if not isinstance(text, str) or not _HEADER_NAME.fullmatch(name):
            raise _wrong(where, "headers", "must be an object of header names and texts")
        if name.lower() in _OWN_HEADERS:
            raise _wrong(where, f"headers.{name}", "is set by Myria itself")
        secret = Secret(filler.text(text, f"headers.{name}"))
        if not _HEADER_VALUE.fullmatch(secret.reveal()):
            raise _wrong(where, f"headers.{name}", "holds a character that no header may")
        if name.lower() not in _PUBLIC_HEADERS:
            filler.secrets.append(secret)
        headers[name] = secret
    return headers


def _wrong(where: str, name: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: {name} {problem}.", field="llm.template")


def template_of(section: str, path: str | None, environ: Mapping[str, str], secrets: Secrets) -> RequestTemplate:
    """Return the template that a section of the settings names.

    Raises:
        ConfigurationError: the section names none, or one that cannot be used.
    """
    field = f"{section}.template"
    if path is None:
        raise ConfigurationError(
            f"{section}.model endpoint needs {field}: a JSON file that names the model.", field=field
        )
    try:
        return RequestTemplate.load(path, environ, secrets=secrets)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, field=field) from None
