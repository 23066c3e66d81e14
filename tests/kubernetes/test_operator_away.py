"""Minutes without the database, without the API server, and without both."""

from __future__ import annotations

import time

from tests.kubernetes.api import Json
from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.pulse import Pulse, resident_kb
from tests.support.counts import in_soak_runs
from tests.support.processes import free_port, wait_until

AWAY_S = 180


def dawdle(_pod: Json, command: list[str]) -> list[str]:
    """Let a pod begin its work in the middle of the outage."""
    return ["/bin/sh", "-c", f'sleep {AWAY_S / 2}; exec "$@"', "sh", *command]


@in_soak_runs
def test_everything_is_away_for_minutes(installation: Installation) -> None:
    """The operator lives, its liveness holds, memory stays, a pod waits, and soon afterwards all has come true.

    Database and API server each go for three minutes, for most of it at the same time.
    """
    place, port = installation.place, free_port()
    plane = place.control_plane
    for tenant in ("default", "other"):
        installation.append(12, tenant=tenant)
    operator, pulse = installation.start(operator_probe_port=str(port)), Pulse(port)
    place.rebuild("before")
    assert reason(place.wait_terminal("before")) == ("True", "BuildPublished")
    size = resident_kb(operator.pid)
    installation.node.rewrites = dawdle
    place.rebuild("through", build={"full": True, "force": True})

    def at_work() -> bool:
        return any(one.name.startswith("through-") for one in installation.node.running())

    wait_until(at_work, 20, "the pod")
    installation.node.rewrites = as_written
    with pulse.felt():
        with installation.without_postgres():
            place.rebuild("meanwhile", tenant="other")
            wait_until(lambda: reason(place.get("through"))[1] == "DatabaseUnavailable", 20, "DatabaseUnavailable")
            time.sleep(AWAY_S / 3)
            plane.stop_api_server()
            try:
                time.sleep(2 * AWAY_S / 3)
            except BaseException:
                plane.start_api_server()
                raise
        try:
            time.sleep(AWAY_S / 3)
        finally:
            plane.start_api_server()
        assert reason(place.wait_terminal("through", 60)) == ("True", "BuildPublished")
        wait_until(lambda: place.jobs_of(place.get("meanwhile")), 20, "the Job")
        # Kubernetes' own controllers take half a minute to come back.
        assert reason(place.wait_terminal("meanwhile", 60)) == ("True", "BuildPublished")
    assert operator.process.poll() is None
    assert set(pulse.answers) == {200}, pulse.answers
    grown = resident_kb(operator.pid) / size
    print(f"RSS {size / 1024:.0f} MiB, then {grown:.2f} times that; {sum(pulse.answers.values())} probes")
    assert grown <= 1.2
    for name in ("before", "through", "meanwhile"):
        (job,) = place.jobs_of(place.get(name))
        assert not job["status"].get("failed"), "a pod gave up instead of waiting for its database"
    assert len(installation.builds()) == 3
