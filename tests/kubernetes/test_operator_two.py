"""Two operators share the work by the database's locks: whatever becomes of one of them, builds go on."""

from __future__ import annotations

import signal

import pytest

from tests.kubernetes.instant import play_pods
from tests.kubernetes.operating import Installation, reason
from tests.support.processes import Spawned


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_builds_go_on_when_one_of_two_is_lost(installation: Installation, number: signal.Signals) -> None:
    """One dies, or stands still as on a node that is cut off: each rebuild is built once, by one Job."""
    place = installation.place
    installation.append(12)
    play_pods(installation)
    operators: list[Spawned] = [installation.start(), installation.start()]
    names = [f"r{at}" for at in range(4)]
    for at, name in enumerate(names):
        place.rebuild(name, build={"full": True, "force": True})
        if at == 1:
            operators[0].signal(number)
    ended = [place.wait_terminal(name, 120) for name in names]
    assert [reason(one) for one in ended] == [("True", "BuildPublished")] * len(names)
    assert [len(place.jobs_of(one)) for one in ended] == [1] * len(names)
    assert len(installation.builds()) == len(names)
    if number == signal.SIGSTOP:
        operators[0].signal(signal.SIGCONT)
