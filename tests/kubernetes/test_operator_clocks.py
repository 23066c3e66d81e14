"""Clocks that are wrong by an hour: what is due, alive or over is judged by PostgreSQL's clock alone."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.support import wrong_clock
from tests.support.counts import SOAK
from tests.support.processes import wait_until

HOUR_S = 3600


def wrong(by_s: int) -> dict[str, str]:
    """Return the environment of a process whose clock is wrong."""
    return {"PYTHONPATH": str(Path(next(iter(wrong_clock.__path__)))), "WRONG_CLOCK_S": str(by_s)}


def off_s(moment: str) -> float:
    """Return how far a time in a status is from now, in seconds."""
    return abs((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("operator_s", "pods_s"), [(HOUR_S, -HOUR_S), (-HOUR_S, HOUR_S)] if SOAK else [(HOUR_S, -HOUR_S)]
)
def test_wrong_clocks_change_nothing(installation: Installation, operator_s: int, pods_s: int) -> None:
    """Builds of an operator and pods whose clocks are off end right and in time, and say when by the right clock."""
    place = installation.place
    installation.append(12)
    installation.environment.update(wrong(operator_s))
    installation.node.environment.update(wrong(pods_s))
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", 'sleep 1; exec "$@"', "sh", *command]
    operator = installation.start(builder_inactivity_timeout_s="2", operator_sweep_s="0.5")
    said = operator.wait_for(r'"time": "([^"]+)"', 10)[1]
    assert off_s(said) == pytest.approx(HOUR_S, abs=600), "the operator's clock is right after all"

    wait_until(lambda: len(place.rebuilds()) == 1, 8, "the resource of a quiet moment")
    (made,) = (one["metadata"]["name"] for one in place.rebuilds())
    assert reason(place.wait_terminal(made)) == ("True", "BuildPublished")
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", 'sleep 3600; exec "$@"', "sh", *command]
    place.rebuild("asked", build={"full": True, "force": True, "deadlineSeconds": 3000})

    def pods() -> list[str]:
        return [one.name for one in installation.node.running() if one.name.startswith("asked-")]

    wait_until(pods, 20, "the pod")
    installation.node.rewrites = as_written
    installation.node.kill(pods()[0])  # another one goes on
    asked = place.wait_terminal("asked", 40)
    assert reason(asked) == ("True", "BuildPublished")
    time.sleep(1.0)
    assert len(place.rebuilds()) == len(installation.builds()) == 2

    status = asked["status"]
    assert 0 <= status["durationSeconds"] < HOUR_S / 2
    for moment in (status["startedAt"], status["completedAt"]):
        assert off_s(moment) < HOUR_S / 2
    for one in status["conditions"]:
        assert off_s(one["lastTransitionTime"]) < HOUR_S / 2, one
    for event in place.admin.objects("Event", place.name):
        if event["involvedObject"]["kind"] == "MyriaRebuild":
            assert off_s(event["firstTimestamp"]) < HOUR_S / 2, event
