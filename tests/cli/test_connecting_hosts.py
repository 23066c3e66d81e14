"""`myria connect`: each host's own file, changed where it stands, and as it was after `--undo`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria_cli.hosts import jsonc
from myria_cli.hosts.known import HOSTS
from tests.cli.conftest import Called, call

KEY = "myr_kept_to_myself"

MINE = """{
  // servers of mine
  "mcpServers": {
    "other": { "command": "npx", "env": { "TOKEN": "secret of another" } }, // stays
  },
  /* and the rest */ "theme": "dark"
}
"""
SETTINGS = """{
  "model": "opus",
  "hooks": {
    "Stop": [
      { "hooks": [{ "type": "command", "command": "say done" }] }
    ]
  }
}
"""
TOML = """model = "x" # mine

[mcp_servers.other]
command = "a"

# about profiles
[profiles.p]
model = "y"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "MYRIA_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path


def connect(host: str, *arguments: str) -> Called:
    called = call("connect", host, *arguments)
    assert called.status == 0, called.err
    return called


def hooked(host: str) -> tuple[str, ...]:
    return ("--hooks",) if HOSTS[host].hooks is not None else ()


def data(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else jsonc.read(text)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


URL = "http://127.0.0.1:8321/mcp/agent"
STARTS = ["serve", "--stdio", "--face", "agent"]


@pytest.mark.parametrize(
    ("host", "file", "group", "expected"),
    [
        (
            "claude-code",
            ".claude.json",
            "mcpServers",
            {"type": "http", "url": URL, "headers": {"Authorization": f"Bearer {KEY}"}},
        ),
        ("cursor", ".cursor/mcp.json", "mcpServers", {"url": URL, "headers": {"Authorization": f"Bearer {KEY}"}}),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            "servers",
            {"type": "http", "url": URL, "headers": {"Authorization": f"Bearer {KEY}"}},
        ),
        (
            "codex",
            ".codex/config.toml",
            "mcp_servers",
            {"url": URL, "http_headers": {"Authorization": f"Bearer {KEY}"}},
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "mcpServers",
            {"httpUrl": URL, "headers": {"Authorization": f"Bearer {KEY}"}},
        ),
    ],
)
def test_each_host_finds_the_memory_in_its_own_file(
    host: str, file: str, group: str, expected: Any, home: Path
) -> None:
    """In its form, with the key, readable by its owner alone; a repeat changes nothing, and undoing leaves no file."""
    connect(host, "--key", KEY, *hooked(host))
    assert data(home / file)[group] == {"myria": expected}
    assert (home / file).stat().st_mode & 0o777 == 0o600
    first = files(home)
    assert "connected already" in connect(host, "--key", KEY, *hooked(host)).err
    assert files(home) == first
    connect(host, "--undo")
    assert files(home) == {}


@pytest.mark.parametrize(
    ("host", "reference"),
    [
        ("claude-code", {"headers": {"Authorization": "Bearer ${MEMORY}"}}),
        ("cursor", {"headers": {"Authorization": "Bearer ${env:MEMORY}"}}),
        ("vscode", {"headers": {"Authorization": "Bearer ${env:MEMORY}"}}),
        ("codex", {"bearer_token_env_var": "MEMORY"}),
        ("gemini", {"headers": {"Authorization": "Bearer $MEMORY"}}),
    ],
)
def test_a_key_may_stay_in_the_environment(host: str, reference: dict[str, Any]) -> None:
    """Each host's own way to name a variable."""
    printed = connect(host, "--key-env", "MEMORY", "--print").out
    entry = tomllib.loads(printed)["mcp_servers"] if host == "codex" else next(iter(json.loads(printed).values()))
    assert reference.items() <= entry["myria"].items()


@pytest.mark.parametrize("host", [*HOSTS])
def test_a_host_may_start_the_server_itself(host: str, home: Path) -> None:
    """By the program's whole path, for hosts with windows have no PATH; where the memory is goes with it."""
    printed = connect(host, "--stdio", "--data-dir", "memory", "--print").out
    entry = tomllib.loads(printed)["mcp_servers"] if host == "codex" else next(iter(json.loads(printed).values()))
    assert Path(entry["myria"]["command"]).is_absolute()
    assert entry["myria"]["args"] == [*STARTS, "--data-dir", str(Path("memory").absolute())]
    assert (host == "codex") == ("startup_timeout_sec" in entry["myria"])
    assert files(home) == {}


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("claude-code", {".claude.json": MINE, ".claude/settings.json": SETTINGS}),
        (
            "cursor",
            {".cursor/mcp.json": MINE.replace("\n", "\r\n"), ".cursor/hooks.json": '{"version": 1, "hooks": {}}'},
        ),
        ("vscode", {".config/Code/User/mcp.json": "\ufeff" + MINE.replace("mcpServers", "servers")}),
        ("codex", {".codex/config.toml": TOML, ".codex/hooks.json": SETTINGS}),
        ("gemini", {".gemini/settings.json": '{"mcpServers":{"other":{"command":"a"}},"hooks":{"Stop":[]}}'}),
        ("claude-desktop", {".config/Claude/claude_desktop_config.json": "{}"}),
    ],
)
def test_what_else_stands_there_stays(host: str, names: dict[str, str], home: Path) -> None:
    """With its comments, order, line ends and mode; a copy lies beside it, and undoing gives the same bytes."""
    for name, text in names.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        path.chmod(0o640)
    before = files(home)
    connect(host, *hooked(host), "--name", "memory-2")
    after = files(home)
    for name, text in names.items():
        assert after[f"{name}.before-myria"] == before[name]
        assert (home / name).stat().st_mode & 0o777 == 0o640
        kept = [line for line in text.splitlines() if line.strip() and not line.startswith(("{", "\ufeff{"))]
        shown = after[name].decode()
        assert [line for line in kept if line.rstrip("}], ") not in shown] == []
    connect(host, "--undo", "--name", "memory-2")
    assert files(home) == before


def test_the_page_prints_what_comes(home: Path) -> None:
    """The example of docs/connect.md, but for whose home it is."""
    page = (Path(__file__).parents[2] / "docs/connect.md").read_text(encoding="utf-8")
    example = page.partition("```diff\n")[2].partition("```")[0]
    assert connect("claude-code", "--dry-run").out == example.replace("/home/ana", str(home))


def test_undoing_keeps_what_was_changed_since(home: Path) -> None:
    """Only what was put in goes; what stood under the same name before comes back."""
    path = home / ".claude.json"
    path.write_text('{"mcpServers": {"myria": {"command": "old"}}}')
    connect("claude-code")
    text = path.read_text()
    path.write_text(jsonc.edited(text, {**jsonc.read(text), "numStartups": 4}))
    connect("claude-code", "--undo")
    assert data(path) == {"mcpServers": {"myria": {"command": "old"}}, "numStartups": 4}


@pytest.mark.parametrize(
    ("host", "name", "text"),
    [
        ("claude-code", ".claude.json", '{"mcpServers": {"myria" : {"command":"old"} /* mine */}}'),
        ("cursor", ".cursor/mcp.json", "// nothing yet\n"),
        ("codex", ".codex/config.toml", '[mcp_servers.myria]\n  command = "old" # mine\n\n# tui\n[tui]\n'),
        ("codex", ".codex/config.toml", 'text = """\n[mcp_servers.myria]\n"""'),
    ],
)
def test_undoing_gives_back_a_former_entry_as_it_was_written(host: str, name: str, text: str, home: Path) -> None:
    """Where nobody else changed the file since, it is the same to the byte."""
    path = home / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    connect(host)
    assert "myria" in data(path)["mcp_servers" if host == "codex" else "mcpServers"]
    connect(host, "--undo")
    assert files(home) == {name: text.encode()}


def test_undoing_takes_out_what_was_put_in_twice(home: Path) -> None:
    """A first key in a file that was not there is no former entry."""
    connect("claude-code", "--key", "myr_first")
    connect("claude-code", "--key", "myr_second", "--hooks")
    connect("claude-code", "--undo")
    assert files(home) == {}


def test_a_dry_run_shows_no_secret(home: Path) -> None:
    """Neither the key nor what others put there, unless asked; and it writes nothing."""
    (home / ".claude.json").write_text('{"mcpServers": {"myria": {"headers": {"Authorization": "Bearer myr_older"}}}}')
    before = files(home)
    told = connect("claude-code", "--hooks", "--key", KEY, "--dry-run")
    assert "+++ " in told.out
    assert "Bearer ***" in told.out
    assert not [secret for secret in (KEY, "myr_older") if secret in told.out + told.err]
    assert KEY in connect("claude-code", "--key", KEY, "--dry-run", "--show-key").out
    shown = connect("claude-code", "--key", KEY, "--dry-run", "--json")
    assert KEY not in shown.out
    assert shown.json["files"][0]["changes"] is True
    assert KEY not in connect("claude-code", "--key", KEY, "--print").out
    assert files(home) == before


@pytest.mark.parametrize(
    ("host", "name", "content"),
    [
        ("claude-code", ".claude.json", b"{"),
        ("claude-code", ".claude.json", b'{"mcpServers": []}'),
        ("claude-code", ".claude.json", b"[]"),
        ("claude-code", ".claude.json", b'{"a": 1, "a": 2}'),
        ("claude-code", ".claude.json", b'{"a": NaN}'),
        ("claude-code", ".claude.json", b"[" * 5000),
        ("claude-code", ".claude.json", b"\xff\xfe{}"),
        ("claude-code", ".claude/settings.json", b'{"hooks": {"Stop": "say"}}'),
        ("codex", ".codex/config.toml", b"model = "),
        ("codex", ".codex/config.toml", b'mcp_servers = { myria = { command = "x" } }'),
    ],
)
def test_what_cannot_be_read_is_left_alone(host: str, name: str, content: bytes, home: Path) -> None:
    """It is refused with a code and the file's name, and nothing is written, not even to the host's other file."""
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    refused = call("connect", host, "--hooks", "--json")
    told = json.loads(refused.err or refused.out)
    assert (refused.status, told["error"]["code"]) == (6, "configuration_error")
    assert str(path) in told["error"]["message"]
    assert files(home) == {name: content}


@pytest.mark.parametrize(
    "arguments",
    [
        ("emacs",),
        ("claude-desktop", "--url", "http://127.0.0.1:1"),
        ("claude-desktop", "--hooks"),
        ("vscode", "--hooks"),
        ("claude-code", "--hooks", "--stdio"),
        ("claude-code", "--hooks", "--file", "x.json"),
        ("claude-code", "--url", "127.0.0.1:8321"),
        ("claude-code", "--url", "http://a b"),
        ("claude-code", "--stdio", "--url", "http://a"),
        ("claude-code", "--key", "a", "--key-env", "B"),
        ("claude-code", "--key", "a b"),
        ("claude-code", "--key-env", "not a name"),
        ("claude-code", "--face", "none"),
        ("claude-code", "--name", "a.b"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], home: Path) -> None:
    """With a code that says the request is wrong, before anything is written."""
    refused = call("connect", *arguments, "--json")
    assert (refused.status, json.loads(refused.err or refused.out)["error"]["code"]) == (2, "invalid_argument")
    assert files(home) == {}


def test_a_link_is_followed_and_a_folder_without_rights_is_told(home: Path) -> None:
    """Settings that are a link to a folder of dotfiles stay one."""
    (home / "dotfiles").mkdir()
    (home / "dotfiles/claude.json").write_text("{}")
    (home / ".claude.json").symlink_to("dotfiles/claude.json")
    connect("claude-code")
    assert (home / ".claude.json").is_symlink()
    assert "myria" in data(home / "dotfiles/claude.json")["mcpServers"]
    (home / ".cursor").write_text("a file, where the folder would be")
    refused = call("connect", "cursor", "--json")
    assert (refused.status, json.loads(refused.err or refused.out)["error"]["code"]) == (6, "configuration_error")


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("linux", ".config/Claude/claude_desktop_config.json"),
        ("win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
    ],
)
def test_the_place_is_that_of_the_system(
    platform: str, expected: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the host itself looks for it."""
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.delenv("APPDATA", raising=False)
    assert HOSTS["claude-desktop"].file() == home / expected


NAMES = st.sampled_from(["a", "b", "mcpServers", "ä", '"'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "// no comment", '"\\']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SPACES = st.sampled_from(["", " ", "\n", "\n  ", " // said\n", "/* a, } */", "\r\n"])


@st.composite
def texts(draw: st.DrawFn, value: Any = None) -> str:
    """Draw JSON with comments and white space anywhere, some with a comma behind the last part."""

    def space() -> str:
        return draw(SPACES)

    if isinstance(value, dict | list) and value:
        parts = (
            [f"{json.dumps(key)}{space()}:{space()}{draw(texts(one))}" for key, one in value.items()]
            if isinstance(value, dict)
            else [draw(texts(one)) for one in value]
        )
        inner = f"{space()},{space()}".join(parts) + (draw(st.sampled_from(["", ","])))
        return ("{%s}" if isinstance(value, dict) else "[%s]") % f"{space()}{inner}{space()}"
    return json.dumps(value)


@given(drawn=st.data(), value=st.dictionaries(NAMES, VALUES, max_size=3), put=VALUES)
def test_any_text_is_changed_to_what_was_asked_and_keeps_its_comments(drawn: Any, value: Any, put: Any) -> None:
    """Putting in, adding and taking out say the same as on the data, and lose no comment outside of what goes."""
    text = drawn.draw(texts(value))
    assert jsonc.read(text) == value
    assert jsonc.read(json.dumps(value)) == value
    added = jsonc.edited(text, {**value, "new": put})
    assert jsonc.read(added) == {**value, "new": put}
    assert added.count("// said") == text.count("// said")
    assert value == {} or jsonc.edited(added, value) == text
    listed = jsonc.edited(text, {**value, "list": {"inner": [put]}})
    assert jsonc.read(jsonc.edited(listed, {**value, "list": {"inner": [0, put]}}))["list"] == {"inner": [0, put]}
    for key in value:
        rest = {name: one for name, one in value.items() if name != key}
        assert jsonc.read(jsonc.edited(text, rest)) == rest
        assert jsonc.read(jsonc.edited(text, {**value, key: put})) == {**value, key: put}


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_secret_is_kept_from_others(home: Path) -> None:
    """A file that others may read becomes its owner's alone when a key goes into it."""
    (home / ".claude.json").write_text("{}")
    (home / ".claude.json").chmod(0o644)
    connect("claude-code", "--key", KEY)
    assert (home / ".claude.json").stat().st_mode & 0o777 == 0o600
