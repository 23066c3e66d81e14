"""Storms: a share of the operator's requests is refused, dropped, hung or lost, and streams break.

The API server behind the proxy is the real one, and pods reach it without the proxy.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.proxy import CALM, Proxy, Storm
from tests.kubernetes.pulse import Pulse
from tests.support.counts import SOAK, share
from tests.support.processes import Spawned, free_port, wait_until

TENANTS = ("ada", "bob", "cyd")

EVERYTHING = Storm(
    shares={
        "409": 0.1,
        "429": 0.05,
        "500": 0.03,
        "502": 0.02,
        "503": 0.03,
        "504": 0.02,
        "page": 0.02,
        "nonsense": 0.02,
        "absent": 0.03,
        "drop": 0.03,
        "hang": 0.01,
        "lost": 0.1,
        "410": 0.1,
        "gone": 0.15,
        "error": 0.15,
        "half": 0.1,
        "cut": 0.2,
    }
)


@pytest.fixture
def proxy(installation: Installation) -> Iterator[Proxy]:
    """Between the operator and the API server, calm at first."""
    one = Proxy(installation.place.control_plane)
    yield one
    one.close()


def start(installation: Installation, proxy: Proxy, *, sweep_s: float = 2.0) -> tuple[Spawned, Pulse]:
    """Start an operator behind the proxy; return it with its pulse."""
    port = free_port()
    operator = installation.start(url=proxy.url, operator_probe_port=str(port), operator_sweep_s=str(sweep_s))
    return operator, Pulse(port)


def check_one_job_each(installation: Installation, names: list[str]) -> None:
    """Each resource is published, had one build, one Job and one move of the pointer."""
    place = installation.place
    builds = Counter(one["resource_uid"] for one in installation.builds())
    moves = Counter(one["resource_uid"] for one in installation.query("SELECT resource_uid FROM myria.pointer_moves"))
    for name in names:
        found = place.get(name)
        uid = found["metadata"]["uid"]
        assert reason(found) == ("True", "BuildPublished"), (name, found["status"])
        assert (builds[uid], moves[uid], len(place.jobs_of(found))) == (1, 1, 1), name
    assert len(place.admin.objects("Job", place.name)) == sum(builds.values()) == len(names)


@pytest.mark.soak
def test_a_storm_of_everything(installation: Installation, proxy: Proxy) -> None:
    """What is asked for in a storm ends right, with one Job each; the operator lives, and goes on."""
    place, length_s, count = installation.place, 120.0 if SOAK else 6.0, share(60)
    for seed, tenant in enumerate(TENANTS):
        installation.append(12, tenant=tenant, seed=seed)
    operator, pulse = start(installation, proxy)
    names = []
    with pulse.felt():
        proxy.storm = EVERYTHING
        for number in range(count):
            names.append(f"s{number:02d}")
            place.rebuild(names[-1], tenant=TENANTS[number % 3], build={"full": True, "force": True})
            time.sleep(length_s / count / 2)
        time.sleep(length_s / 2)
        wait_until(lambda: len(proxy.done) >= 8, 60, "eight kinds of weather")
        print(f"ended in the storm: {sum(reason(place.get(name))[0] == 'True' for name in names)} of {count}")
        proxy.storm = CALM
        for name in names:
            place.wait_terminal(name, 20 + 2 * count)
        print(dict(proxy.done))
        place.rebuild("after", tenant="ada", build={"force": True})
        place.wait_terminal("after")
    assert operator.process.poll() is None
    assert set(pulse.answers) == {200}, pulse.answers
    check_one_job_each(installation, [*names, "after"])


@pytest.mark.soak
def test_nothing_works_for_a_while(installation: Installation, proxy: Proxy) -> None:
    """When every request (every write, for 409) fails, few are made, and work goes on when it is over.

    Each resource waits longer after each failure, so a slow machine makes fewer requests, not more. How soon the end of
    an outage is noticed is proven on a clock of its own, in tests/operator/test_queue.py.
    It begins on such a day: the operator starts without an API server.
    """
    place, length_s = installation.place, 60.0 if SOAK else 2.0
    installation.append(4)
    proxy.bring(Storm(shares={"drop": 1.0}))
    operator, pulse = start(installation, proxy, sweep_s=30)
    with pulse.felt():
        place.rebuild("first", suspend=True)
        time.sleep(1.0)
        proxy.bring(CALM)
        place.wait_condition("first", "Succeeded", ("Unknown",), 10)
        for fault in ("429", "503", "409", "drop", "hang") if SOAK else ("429", "409", "hang"):
            proxy.bring(Storm(shares={fault: 1.0}, hang_s=length_s))
            for number in range(3):
                place.rebuild(f"n{number}-{fault}", suspend=True)
            time.sleep(1.0)
            before, since = proxy.arrived.total(), time.monotonic()
            time.sleep(length_s)
            requests, passed_s = proxy.arrived.total() - before, time.monotonic() - since
            proxy.bring(CALM)
            for number in range(3):
                place.wait_condition(f"n{number}-{fault}", "Succeeded", ("Unknown",), 60)
            print(f"{fault}: {requests / passed_s:.1f} requests a second")
            assert requests < (25 if SOAK else 60) * passed_s, proxy.done  # while waits still grow, more are made
    assert operator.process.poll() is None
    assert set(pulse.answers) == {200}, pulse.answers


def test_a_path_that_is_not_served_is_no_resource_that_is_gone(installation: Installation, proxy: Proxy) -> None:
    """An API server that begins, or a gateway without it, answers 404 to everything: no build is aborted over it."""
    place = installation.place
    installation.append(4)
    installation.node.accepts = lambda _pod: False
    start(installation, proxy, sweep_s=0.3)
    place.rebuild("there")
    wait_until(lambda: place.admin.objects("Pod", place.name), 20, "the pod")
    proxy.bring(Storm(shares={"absent": 1.0}))
    wait_until(lambda: proxy.done["absent"] >= 10, 60, "ten answers of 404")
    proxy.bring(CALM)
    installation.node.accepts = lambda _pod: True
    place.wait_terminal("there")
    check_one_job_each(installation, ["there"])


@pytest.mark.soak
def test_broken_watches(installation: Installation, proxy: Proxy) -> None:
    """Whatever a watch is answered, the operator lives, and hears again: no sweep helps it here."""
    place = installation.place
    installation.append(4)
    operator, pulse = start(installation, proxy, sweep_s=3600)
    with pulse.felt():
        for fault in ("410", "gone", "error", "half", "cut") if SOAK else ("410", "error", "cut"):
            proxy.bring(Storm(shares={fault: 1.0}, cut_s=0.1))
            place.rebuild(f"during-{fault}", suspend=True)
            wait_until(lambda met=fault: proxy.done[met] >= 2, 20, f"a watch that meets {fault}")  # type: ignore[misc]
            proxy.bring(CALM)
            place.rebuild(f"after-{fault}", suspend=True)
            for name in (f"during-{fault}", f"after-{fault}"):
                place.wait_condition(name, "Succeeded", ("Unknown",), 10)
    assert operator.process.poll() is None
    assert set(pulse.answers) == {200}, pulse.answers
