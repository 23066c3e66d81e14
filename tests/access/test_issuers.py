"""The file of accepted authorization servers: what is wrong in it is refused at the start, by its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from myria.access.issuers import ConsoleClient, load_issuers
from myria.access.vault import Secrets
from myria.errors import ConfigurationError
from myria.settings import Settings

ENTRY: dict[str, Any] = {
    "name": "login",
    "issuer": "https://login.example.com/realms/a",
    "algorithms": ["RS256"],
    "tenant": {"always": ["team-a"]},
    "participants": {"claim": "sub"},
    "roles": {"always": ["read"]},
}


def write(tmp_path: Path, document: Any) -> Path:
    """Write a document as YAML."""
    path = tmp_path / "issuers.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_the_example_of_the_docs_is_good(tmp_path: Path) -> None:
    """As it stands in docs/oauth.md."""
    page = (Path(__file__).parents[2] / "docs" / "oauth.md").read_text()
    example = next(part for part in page.split("```yaml\n") if part.startswith("issuers:")).partition("```")[0]
    assert [issuer.name for issuer in load_issuers(write(tmp_path, example))] == ["login"]


def test_an_entry_needs_little(tmp_path: Path) -> None:
    """The rest has defaults: the face core, both usual types, an audience of one's own at each face."""
    (issuer,) = load_issuers(write(tmp_path, {"issuers": [ENTRY]}))
    assert (issuer.faces.always, issuer.types, issuer.audiences) == (("core",), ("at+jwt", "JWT"), ())


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"algorithms": ["none"]}, "issuers[0].algorithms[0]"),
        ({"algorithms": ["RS256", "HS256"]}, "issuers[0].algorithms[1]"),
        ({"algorithms": []}, "issuers[0].algorithms"),
        ({"algorithms": "RS256"}, "issuers[0].algorithms"),
        ({"name": "Log In"}, "issuers[0].name"),
        ({"issuer": "http://login.example.com"}, "issuers[0].issuer"),
        ({"issuer": "https://user:secret@login.example.com"}, "issuers[0].issuer"),
        ({"issuer": "https://login.example.com?a=b"}, "issuers[0].issuer"),
        ({"issuer": "file:///etc/passwd"}, "issuers[0].issuer"),
        ({"jwks_uri": "http://10.0.0.1/keys"}, "issuers[0].jwks_uri"),
        ({"jwks_uri": "https://"}, "issuers[0].jwks_uri"),
        ({"leeway_s": 301}, "issuers[0].leeway_s"),
        ({"console": {}}, "issuers[0].console.client_id"),
        ({"console": {"client_id": "a", "scopes": ["a b"]}}, "issuers[0].console.scopes[0]"),
        ({"console": {"client_id": "a", "token_endpoint": "http://10.0.0.1/"}}, "issuers[0].console.token_endpoint"),
        ({"tenant": {"always": ["*"]}}, "issuers[0].tenant"),
        ({"tenant": {"always": ["a", "b"]}}, "issuers[0].tenant"),
        ({"tenant": {"always": ["a"], "claim": "org"}}, "issuers[0].tenant"),
        ({"tenant": {"claim": "org", "values": {"x": ["a", "b"]}}}, "issuers[0].tenant"),
        ({"tenant": {}}, "issuers[0].tenant"),
        ({"participants": {"always": [" ada"]}}, "issuers[0].participants"),
        ({"participants": {"claim": ""}}, "issuers[0].participants.claim"),
        ({"participants": {"claim": "a", "values": {"x": ["a"]}, "prefix": "u:"}}, "issuers[0].participants"),
        ({"may_ask": {"always": ["**"]}}, "issuers[0].may_ask"),
        ({"roles": {"always": ["root"]}}, "issuers[0].roles.always[0]"),
        ({"roles": {"claim": "scope"}}, "issuers[0].roles"),
        ({"roles": {"claim": "scope", "values": {"a": ["root"]}}}, "issuers[0].roles.values.a[0]"),
        ({"faces": {"always": ["everything"]}}, "issuers[0].faces.always[0]"),
        ({"audience": "x"}, "issuers[0].audience"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], place: str) -> None:
    """By its path in the document, beside the file's."""
    path = write(tmp_path, {"issuers": [{**ENTRY, **changes}]})
    with pytest.raises(ConfigurationError) as refused:
        load_issuers(path)
    assert refused.value.details["at"] == place
    assert str(path) in refused.value.message
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    "document", ["issuers: [", "", "[]", "issuers: []", "issuers: []\nissuers: []", {"issuers": [ENTRY, ENTRY]}]
)
def test_a_document_that_is_none_is_refused(tmp_path: Path, document: Any) -> None:
    """No YAML, nothing in it, a key or an issuer that is there twice."""
    with pytest.raises(ConfigurationError, match="issuers_file"):
        load_issuers(write(tmp_path, document))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml cannot be read"):
        load_issuers(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "settings",
    [
        {"auth.issuers_file": "x.yaml", "auth.public_url": "https://m.example.com"},
        {"auth.issuers_file": "x.yaml", "auth.mode": "keys"},
        {"auth.server": True, "auth.public_url": "https://m.example.com"},
        {"auth.server": True, "auth.mode": "keys"},
        {"auth.mode": "keys", "auth.public_url": "http://m.example.com"},
        {"auth.mode": "keys", "auth.public_url": "https://m.example.com/"},
        {"auth.mode": "keys", "auth.public_url": "https://m.example.com/memory"},
    ],
)
def test_settings_of_issuers_hold_together(settings: dict[str, Any]) -> None:
    """Tokens count beside keys only, and for an address that clients can reach."""
    with pytest.raises(ConfigurationError, match=r"auth\."):
        Settings.load(environ={}, overrides=settings).auth.require_servable()


def test_a_secret_of_the_console_is_named_not_written(tmp_path: Path) -> None:
    """It comes from a variable, a file, or what is kept sealed; what is not there is named."""
    (tmp_path / "secret").write_text("of a file\n")
    kept = Secrets({("default", "login"): "sealed", ("team", "login"): "of a tenant"})
    found = {
        "${LOGIN}": "of a variable",
        f"${{file:{tmp_path}/secret}}": "of a file",
        "${secret:login}": "sealed",
        "${secret:team/login}": "of a tenant",
    }
    for named, secret in found.items():
        assert ConsoleClient(client_id="a", client_secret=named).secret({"LOGIN": "of a variable"}, kept) == secret
    assert ConsoleClient(client_id="a").secret({}, kept) is None
    for named in ("${NOWHERE}", f"${{file:{tmp_path}/nowhere}}", "${secret:nowhere}"):
        with pytest.raises(ConfigurationError, match=re.escape(named)):
            ConsoleClient(client_id="a", client_secret=named).secret({}, kept)
    written = {**ENTRY, "console": {"client_id": "a", "client_secret": "hunter2"}}
    with pytest.raises(ConfigurationError) as refused:
        load_issuers(write(tmp_path, {"issuers": [written]}))
    assert "must say where it is" in refused.value.message
    assert "hunter2" not in refused.value.message
