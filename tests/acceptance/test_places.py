"""Where files and databases are said to be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.cli.conftest import Call, call, myria
from tests.support.skips import not_here

__all__ = ["myria"]


def test_an_export_to_a_pipe_leaves_it_a_pipe(myria: Call, tmp_path: Path) -> None:
    """What is no ordinary file (a device, a pipe) is written to, never replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert myria("export", pipe).status == 0
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)


def test_a_full_device_is_said_to_be_full(myria: Call, tmp_path: Path) -> None:
    """An export that cannot be written ends with a message and its status."""
    if not Path("/dev/full").is_char_device():
        not_here("no /dev/full")
    line = '{"timestamp": "2026-01-01T00:00:00Z", "channel": "c", "participants": ["a"], "payload": {}}'
    (tmp_path / "one.jsonl").write_text(line)
    assert myria("import", tmp_path / "one.jsonl").status == 0
    ended = myria("export", "/dev/full")
    assert ended.status == 2
    assert "/dev/full cannot be written" in ended.err
    assert Path("/dev/full").is_char_device()


def test_a_folder_is_no_file_to_import(myria: Call, tmp_path: Path) -> None:
    """The message names what was given."""
    ended = myria("import", tmp_path)
    assert ended.status == 2
    assert f"{tmp_path} cannot be read" in ended.err


def test_a_dsn_that_is_none_is_a_configuration_error() -> None:
    """A slip of the keyboard is no bug of the program."""
    ended = call("status", "--dsn", "nonsense")
    assert ended.status == 6
    assert "configuration_error" in ended.err
