"""The same events give the same tree on every machine (rule 7 of docs/architecture.md)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from myria.topics.model import PlanEvent
from myria.topics.scope_plan import plan_scope
from tests.planning.generators import MINUTE, SCOPE, SETTINGS, TEXTS, key_of

ROOT = "90a424e81df70500e74a7e909e9d7919e62729d31d20e6b3760d62b89fc6fea8"
"""The root of `conversation`: when it changes, PLANNER_VERSION (or ANALYSIS_VERSION) must change, and this line."""


def conversation() -> list[PlanEvent]:
    """Two hundred events in many scripts, over some months, with hints, tasks and markers."""
    return [
        PlanEvent(
            event_seq=seq,
            event_id=f"evt_{seq:05}",
            key=key_of(f"evt_{seq:05}"),
            timestamp=1_700_000_000_000_000 + seq // 7 * 4100 * MINUTE + seq % 7 * MINUTE,
            type="topic_marker" if seq % 50 == 0 else "message",
            task=("task_a", "task_b", None)[seq % 31 % 3],
            text=f"{TEXTS[seq % len(TEXTS)]} Number {seq % 13} Straße İstanbul résumé naïve ΣΊΣΥΦΟΣ",
            speaker=("Ana", "Bo", "İlkay", None)[seq % 4],
            hints=(("kiln_repair", 300 + seq),) if seq % 5 == 0 else (),
        )
        for seq in range(200)
    ]


def root() -> str:
    """The root rendering id of the conversation."""
    top, _ = asyncio.run(plan_scope(SCOPE, conversation(), SETTINGS))
    assert top is not None
    return top.rendering_id.hex()


def test_the_root_is_pinned() -> None:
    """A change of the plan is never silent: the root of a fixed conversation is written down here."""
    assert root() == ROOT


@pytest.mark.parametrize(
    ("seed", "locale", "zone"),
    [("0", "C", "UTC"), ("1", "tr_TR.UTF-8", "Asia/Kolkata"), ("77", "C.UTF-8", "America/St_Johns")],
)
def test_hash_seed_locale_and_time_zone_do_not_matter(seed: str, locale: str, zone: str) -> None:
    """Another process with another hash seed, locale and time zone plans the same root."""
    program = (
        "import locale, sys; sys.path[:0] = sys.argv[1:]\n"
        "try: locale.setlocale(locale.LC_ALL, '')\n"
        "except locale.Error: pass\n"
        "from tests.planning.test_determinism import root; print(root())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "LANG": locale, "TZ": zone}
    done = subprocess.run(
        [sys.executable, "-c", program, *sys.path],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == root()
