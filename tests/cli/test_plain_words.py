"""What somebody new types: a snapshot by its number, the folder by either variable; what is said names commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from myria_cli.options import Options
from myria_cli.place import data_dir_of
from myria_server.api.tools import TOOLS
from tests.cli.conftest import Call, call


@pytest.fixture
def built(myria: Call, sample_file: Path) -> Call:
    """A memory with two snapshots, the second one forced, and a third that is held."""
    assert myria("import", sample_file).status == 0
    for more in ((), ("--force",), ("--force", "--hold")):
        assert myria("rebuild", "--here", "--wait", "--full", *more).status == 0
    return myria


def test_a_snapshot_goes_by_its_number_everywhere(built: Call) -> None:
    """`show`, `diff`, `rollback`, `publish` and `discard` take what `myria snapshots` prints in its first column."""
    kept = {one["number"]: one for one in built("snapshots", "--json").json["snapshots"]}
    assert built("diff", "1", "2").status == 0
    back = built("rollback", "1", "--json")
    assert back.json["snapshot_id"] == kept[1]["snapshot_id"]
    assert built("rollback", "2", "--json").json["snapshot_id"] == kept[2]["snapshot_id"]
    assert built("discard", "3", "--json").json["snapshot_id"] == kept[3]["snapshot_id"]


def test_a_held_snapshot_is_published_by_its_number(built: Call) -> None:
    """And becomes the active one."""
    assert built("publish", "3").status == 0
    (active,) = [one for one in built("snapshots", "--json").json["snapshots"] if one["status"] == "active"]
    assert active["number"] == 3


def test_hints_of_the_command_name_commands(built: Call) -> None:
    """What is refused says what to type, never the name of a tool."""
    names = {name for tool in TOOLS for name in (tool.name, tool.plain(), tool.dotted()) if "_" in name or "." in name}
    for words in (
        ("rollback", "99"),
        ("rollback", "snap_nope"),
        ("publish", "99"),
        ("publish", "snap_nope"),
        ("publish", "1"),
        ("key", "create", "nobody"),
        ("discard", "0"),
        ("discard", "2"),
        ("diff", "1", "99"),
        ("show", "nope"),
        ("replay", "nope"),
        ("audit", "--build", "nope"),
    ):
        refused = built(*words)
        assert not names & set(re.findall(r"[\w.]+", refused.err + refused.out)), words
        if refused.status == 3 and words[0] not in ("replay", "audit"):
            assert "`myria snapshots`" in refused.err, words


def test_status_says_when_builds_begin(built: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """In sentences, with units; and that a tenant nobody kept anything for is not one that lost it."""
    monkeypatch.setenv("MYRIA_BUILDER_INACTIVITY_TIMEOUT_S", "45")
    assert "not by themselves while automatic builds are paused" in built("status").out  # a held snapshot waits
    assert built("discard", "3").status == 0
    told = " ".join(built("status").out.split())
    assert "builds begin when `myria rebuild` asks" in told
    assert "after 45 s without an event" in told
    assert "at 100 fresh events" in told
    monkeypatch.setenv("MYRIA_BUILDER_INACTIVITY_TIMEOUT_S", "0")
    assert "not after a silence" in built("status").out
    assert "nothing was ever built for the tenant nobodys" in built("status", "--tenant", "nobodys").err


def test_a_face_that_is_off_is_not_served_over_stdio(myria: Call) -> None:
    """The setting that switches it on is named."""
    refused = myria("serve", "--stdio", "--face", "turns")
    assert (refused.status, "MYRIA_TURNS_ENABLED=true" in refused.err) == (6, True)


def test_both_variables_name_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DATA_DIR, which `make up` takes, and MYRIA_DATA_DIR are one thing; --data-dir goes before both."""
    for given in ({}, {"DATA_DIR": "a"}, {"MYRIA_DATA_DIR": "a"}, {"DATA_DIR": "a", "MYRIA_DATA_DIR": "a/../a"}):
        with monkeypatch.context() as environment:
            for name in ("DATA_DIR", "MYRIA_DATA_DIR"):
                environment.delenv(name, raising=False)
            environment.setenv("XDG_DATA_HOME", str(tmp_path))
            for name, folder in given.items():
                environment.setenv(name, str(tmp_path / folder))
            wanted = tmp_path / "a" if given else tmp_path / "myria"
            assert f"there is no memory in {wanted} yet" in call("status").err.replace("a/../a", "a")
            assert f"there is no memory in {tmp_path / 'b'} yet" in call("status", "--data-dir", tmp_path / "b").err


def test_two_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By both names, unless --data-dir says which; a DSN needs neither."""
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("MYRIA_DATA_DIR", str(tmp_path / "b"))
    refused = call("status")
    assert refused.status == 6
    assert f"DATA_DIR={tmp_path / 'a'}" in refused.err
    assert f"MYRIA_DATA_DIR={tmp_path / 'b'}" in refused.err
    assert data_dir_of(Options(data_dir=tmp_path / "c")) == tmp_path / "c"


def test_a_dsn_goes_before_another_programs_variable(
    built: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DATA_DIR is no name of ours alone: it does not lead away from a database that is named."""
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    assert built("status").status == 0


def test_make_takes_either_variable(tmp_path: Path) -> None:
    """`make up` gives the folder on by whichever name it came."""
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        ["make", "--dry-run", "--always-make", "up", f"DATA_DIR={tmp_path}", f"PYTHON={sys.executable}"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'myria up  --data-dir "{tmp_path}"' in told.stdout
