"""The operator killed, doubled, and without its API server or its database: the same end, once."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from myria_operator.naming import job_name
from tests.kubernetes.api import Json, condition
from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.support.counts import SOAK, share
from tests.support.processes import Spawned, wait_until

TENANTS = ("one", "two", "three")


@dataclass(slots=True)
class Observer:
    """Samples live pods and unfinished builds ten times a second, from outside.

    That a tenant never has two unfinished builds is not watched: PostgreSQL refuses the second one
    (tests/building/test_capture.py tries).
    """

    installation: Installation
    breaches: list[str] = field(default_factory=list)
    samples: int = 0
    builds_seen: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Sample until stopped; what cannot be asked now is asked the next time."""
        while not self._stop.wait(0.1):
            try:
                unfinished = self.installation.query("SELECT 1 FROM myria.builds WHERE finished_at IS NULL LIMIT 1")
                pods = Counter(one.labels.get("job-name", "") for one in self.installation.node.running())
            except Exception:  # noqa: BLE001 - PostgreSQL is being restarted
                continue
            self.samples += 1
            self.builds_seen += bool(unfinished)
            if len(pods) > 4 + 3:  # pods of ended builds may take a moment to go
                self.breaches.append(f"pods of {len(pods)} Jobs")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample for the length of the block."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(10)


def check_all_true(installation: Installation, names: list[str]) -> None:
    """Each resource is terminal and true to the database, had exactly one Job, and nothing is left over."""
    place = installation.place
    builds = {row["resource_uid"]: row for row in installation.builds()}
    moves = {row["resource_uid"]: row for row in installation.query("SELECT * FROM myria.pointer_moves")}
    jobs = Counter(
        owner["uid"]
        for job in place.admin.objects("Job", place.name)
        for owner in job["metadata"].get("ownerReferences", [])
    )
    for name in names:
        resource = place.get(name)
        uid, status = resource["metadata"]["uid"], resource["status"]
        build = builds[uid]
        assert build["finished_at"] is not None, name
        assert build["build_id"] == status["buildID"], name
        assert jobs[uid] == 1, (name, jobs[uid])
        if build["status"] == "succeeded":
            assert reason(resource) == ("True", "BuildPublished"), (name, status)
            assert moves[uid]["to_snapshot_id"] == status["snapshotID"]
        else:
            assert reason(resource)[0] == "False", (name, build["status"], status)
            assert uid not in moves
    assert len(builds) == len(names), "a build nobody asked for"
    assert sum(jobs.values()) == len(names), "an orphaned Job"


def asking(installation: Installation, names: list[str]) -> Iterator[str]:
    """Make one resource at each step, over three tenants, some of them full builds; their names go to `names`."""
    for number in itertools.count():
        tenant = TENANTS[number % len(TENANTS)]
        name = f"r{number:02d}-{tenant}"
        installation.place.rebuild(
            name, tenant=tenant, build={"full": number % 4 == 0, "force": True, "backoffLimit": 20}
        )
        names.append(name)
        yield name


def all_ended(installation: Installation, names: list[str]) -> bool:
    """Tell whether every resource is terminal."""
    found = {one["metadata"]["name"]: one for one in installation.place.rebuilds()}
    return all(name in found and reason(found[name])[0] in {"True", "False"} for name in names)


def at_work(installation: Installation) -> set[str]:
    """Return the unfinished builds that a live pod works on."""
    jobs = {one.labels.get("job-name") for one in installation.node.running()}
    unfinished = installation.query(
        "SELECT build_id, resource_name, resource_uid FROM myria.builds WHERE finished_at IS NULL"
    )
    return {row["build_id"] for row in unfinished if job_name(row["resource_name"], row["resource_uid"]) in jobs}


def kill_at_work(
    installation: Installation, operator: Spawned, more: Iterator[object], *, pause_s: float, not_after: float
) -> bool:
    """Kill the operator while a build runs, asking for one where none does; tell whether one did, before and after.

    `pause_s`: how long it may run first. `not_after`, on the monotonic clock: when the operator is killed anyway.
    """
    has_asked = False
    while time.monotonic() < not_after:
        before = at_work(installation)
        if before and pause_s > 0:
            time.sleep(pause_s)
            pause_s = 0.0
        elif before:
            break
        elif not has_asked:
            has_asked = True
            next(more, None)
        time.sleep(0.1)
    before = at_work(installation)
    operator.kill()
    return bool(before & at_work(installation))


@pytest.mark.soak
def test_killed_again_and_again(installation: Installation) -> None:
    """Killed, two times of three while a build runs, and servers restarted: each resource ends, with one Job."""
    chosen = random.Random(7)
    resources, kills = share(30, least=4), share(30, least=2)
    latest_s = 3.0 if kills > 20 else 1.0
    for seed, tenant in enumerate(TENANTS):
        installation.append(40, tenant=tenant, seed=seed)

    # Pods take their time, as on a cluster; some builds are over before anybody looks.
    def slowly(_pod: Json, command: list[str]) -> list[str]:
        time.sleep(chosen.choice((0, 1, 2)))
        return command

    installation.node.rewrites = slowly
    observer = Observer(installation)
    names: list[str] = []
    more = asking(installation, names)
    at_work_when_killed = number = 0
    with observer.watching():
        restarts = {2 * kills // 3: "postgres"} | ({kills // 3: "api", kills - 1: "api"} if SOAK else {})
        for _ in range(max(3, resources // 5)):  # the others come when a kill wants a build that runs
            next(more)
        while number < kills or 3 * at_work_when_killed < 2 * number:
            assert number < 5 * kills, f"{at_work_when_killed} of {number} kills while a build ran"
            operator = installation.start(ready=False)
            operator.wait_for("operator_ready")
            ready = time.monotonic()
            time.sleep(chosen.uniform(0, latest_s))
            if restarts.get(number) == "api":
                installation.place.control_plane.restart_api_server()
                ready = time.monotonic()
            pause_s = chosen.choice((0.0, chosen.uniform(0, 1)))
            not_after = ready + 60
            at_work_when_killed += kill_at_work(installation, operator, more, pause_s=pause_s, not_after=not_after)
            if restarts.get(number) == "postgres":
                with installation.without_postgres():
                    time.sleep(0.5)
            number += 1
        installation.start()
        while len(names) < resources:
            next(more)
        wait_until(lambda: all_ended(installation, names), 120 + 4 * resources, "the end of all resources")
    print(f"{at_work_when_killed} of {number} kills while a build ran; {observer.samples} samples")
    assert observer.breaches == []
    assert observer.samples > 20
    check_all_true(installation, names)


@pytest.mark.soak
def test_operators_at_once_and_fewer_of_them(installation: Installation) -> None:
    """Operators that know nothing of one another do no more than one, also when one dies and another stands still."""
    count = max(6, share(20))
    for seed, tenant in enumerate(TENANTS):
        installation.append(30, tenant=tenant, seed=seed)
    observer = Observer(installation)
    lost = [installation.start(), installation.start()]
    installation.start()
    more = asking(installation, [])
    with observer.watching():
        names = list(itertools.islice(more, count // 3))
        lost[0].signal(signal.SIGSTOP)  # as on a node that is cut off, with the locks that it holds
        names += itertools.islice(more, count // 3)
        lost[1].kill()
        names += itertools.islice(more, count - len(names))
        wait_until(lambda: all_ended(installation, names), 60 + 5 * count, "the end of all resources")
    lost[0].signal(signal.SIGCONT)
    assert observer.breaches == []
    check_all_true(installation, names)
    assert all(reason(installation.place.get(name)) == ("True", "BuildPublished") for name in names)


def test_the_api_server_is_away_while_a_build_ends(installation: Installation) -> None:
    """A build that ends while nobody can be told is told of afterwards, by the same operator, and its pod's end too."""
    place = installation.place
    installation.node.rewrites = as_written
    installation.append(30)
    operator = installation.start()
    place.rebuild("through")
    wait_until(installation.node.running, 30, "the pod")
    place.control_plane.stop_api_server()
    try:
        wait_until(lambda: installation.active() is not None, 30, "the publish")
        operator.wait_for("reconcile_waits|sweep_waits")
    finally:
        place.control_plane.start_api_server()
    assert operator.process.poll() is None
    through = place.wait_terminal("through", 60)
    assert reason(through) == ("True", "BuildPublished")
    wait_until(lambda: condition(place.jobs_of(through)[0], "Complete"), 60, "the end of the Job")


def test_the_database_is_away(installation: Installation) -> None:
    """Without its database the operator says so on the resource, stays alive, and goes on by itself."""
    place = installation.place
    installation.append(12)
    operator = installation.start()
    place.rebuild("before")
    place.wait_terminal("before")
    with installation.without_postgres():
        place.rebuild("during", tenant="default", build={"force": True})
        operator.wait_for("reconcile_waits|sweep_waits|poll_waits")
        assert operator.process.poll() is None
    assert reason(place.wait_terminal("during", 60)) == ("True", "BuildPublished")
