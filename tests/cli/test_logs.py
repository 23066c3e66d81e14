"""The log file: JSON lines, shared by processes, set aside when it is full."""

from __future__ import annotations

import json
import logging
import multiprocessing
from pathlib import Path

import pytest

from myria.access.secrets import make_key
from myria.errors import ConfigurationError
from myria.settings import LogSettings, ServiceSettings
from myria_cli import logs
from tests.cli.conftest import call

LINES = 300
WRITERS = 3


def _write(path: str, writer: int, rotated_at: int) -> None:
    logs.configure(ServiceSettings(), f"plane{writer}", LogSettings(file=path, file_bytes=rotated_at, file_count=100))
    for number in range(LINES):
        logging.getLogger("test").warning("line %d", number, extra={"writer": writer})


@pytest.mark.processes
def test_processes_share_a_file_and_lose_no_line(tmp_path: Path) -> None:
    """Whoever rotates, and whoever writes meanwhile: every line is there once and whole, no file too large."""
    path = tmp_path / "myria.jsonl"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write, args=(str(path), writer, 20_000)) for writer in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()

    files = [file for file in tmp_path.iterdir() if file.suffix != ".lock"]
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(files) > 2
    assert all(file.stat().st_size <= 20_000 for file in files)
    assert sorted((line["writer"], line["message"]) for line in lines) == sorted(
        (writer, f"line {number}") for writer in range(WRITERS) for number in range(LINES)
    )


def test_old_files_go(tmp_path: Path) -> None:
    """No more files are kept than the setting says."""
    path = tmp_path / "myria.jsonl"
    logs.configure(ServiceSettings(), "up", LogSettings(file=str(path), file_bytes=1024, file_count=2))
    for number in range(100):
        logging.getLogger("test").warning("line %d", number)
    assert {file.name for file in tmp_path.iterdir()} == {
        *("myria.jsonl", "myria.jsonl.1", "myria.jsonl.2", "myria.jsonl.lock")
    }


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process says which setting to mend, and does not begin."""
    path = tmp_path / "nowhere" / "myria.jsonl"
    with pytest.raises(ConfigurationError, match=r"log\.file"):
        logs.configure(ServiceSettings(), "up", LogSettings(file=str(path)))
    monkeypatch.setenv("MYRIA_LOG_FILE", str(path))
    assert call("serve", "--stdio", "--dsn", "postgresql://localhost:1/none").status == 6


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_key_is_ever_logged(tmp_path: Path, capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    """Neither in the message nor in a field nor in a trace; its id stays, to find it by."""
    path = tmp_path / "myria.jsonl"
    logs.configure(ServiceSettings(log_format=log_format), "up", LogSettings(file=str(path)))  # type: ignore[arg-type]
    made = make_key()
    secret = made.text.rpartition("_")[2]
    log = logging.getLogger("test")
    log.warning("header %s", f"Bearer {made.text}", extra={"sent": {"authorization": made.text}})
    try:
        raise ValueError(f"no such key: {made.text!r}")
    except ValueError:
        log.exception("failed")
    for written in (capsys.readouterr().err, path.read_text(encoding="utf-8")):
        assert secret not in written
        assert written.count(f"myr_{made.key_id}_***") >= 2
