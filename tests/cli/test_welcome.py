"""What `myria up` says about connecting to it."""

from __future__ import annotations

import json
from typing import Any

from myria.access.secrets import make_key
from myria.settings import AuthSettings, Settings
from myria_cli.welcome import how_to_connect

URL = "http://127.0.0.1:8321/mcp"


def pasted(text: str) -> dict[str, Any]:
    """Return the server's entry of the configuration that is to be pasted."""
    configuration: dict[str, Any] = json.loads(text[text.index("{") :])["mcpServers"]["myria"]
    return configuration


def test_who_can_sign_in_is_given_the_address_alone() -> None:
    """A header that is no key would keep clients from signing in; without sign-in its place is shown."""
    guarded = how_to_connect(URL, Settings(auth=AuthSettings(mode="keys")), None).plain
    assert pasted(guarded)["headers"] == {"Authorization": "Bearer myr_..."}
    auth = AuthSettings(mode="keys", server=True, public_url="http://127.0.0.1:8321")
    signing_in = how_to_connect(URL, Settings(auth=auth), None).plain
    assert pasted(signing_in) == {"type": "http", "url": URL}
    assert "the address alone" in signing_in
    assert "headers" not in pasted(how_to_connect(URL, Settings(), None).plain)


def test_the_first_key_says_as_whom_it_asks() -> None:
    """The names are those of the setting, and the key stands where clients send it."""
    key = make_key()
    settings = Settings(auth=AuthSettings(mode="keys", local_participants=("zoe", "helper")))
    text = how_to_connect(URL, settings, key).plain
    assert "appends as zoe and helper," in text
    assert pasted(text)["headers"] == {"Authorization": f"Bearer {key.text}"}
