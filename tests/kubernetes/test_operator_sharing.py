"""Several pods share a build: each has its tasks, some of them die, and what one process makes comes out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.support import builds
from tests.support.events import append, conversation
from tests.support.processes import wait_until

SCOPES = 20


@contextmanager
def stopped_in_their_tasks(installation: Installation) -> Iterator[None]:
    """Whoever comes to write a tree's nodes waits in the middle of its task until the block is over."""
    run = installation.databases.loop.run
    connection = run(asyncpg.connect(installation.database.dsn))
    run(connection.execute("BEGIN"))
    run(connection.execute("LOCK TABLE myria.nodes IN SHARE MODE"))
    try:
        yield
    finally:
        run(connection.close())


def at_work(installation: Installation) -> dict[int, int]:
    """Return which builder, by process id, holds the lease of which scope's task."""
    rows = installation.query(
        "SELECT worker, scope_id FROM myria.build_tasks WHERE status = 'pending' AND lease_until > clock_timestamp()"
    )
    return {int(row["worker"].split(":")[1]): row["scope_id"] for row in rows}


def nodes(installation: Installation) -> set[bytes]:
    """Return the identity of every node in the database."""
    return {row["node_id"] for row in installation.query("SELECT node_id FROM myria.nodes")}


def test_pods_share_tasks_and_replace_each_other(installation: Installation) -> None:
    """Twenty scopes, four pods; one is killed at its task, another after a third has ended: one process does the same.

    The second to be killed stands still from the beginning, as on a node that is cut off, so that it is not done when
    the build is.
    """
    place, node, run = installation.place, installation.node, installation.databases.loop.run
    node.rewrites = as_written
    for number in range(SCOPES):
        people = ("ana", f"p{number:02d}")
        run(append(installation.database.server_dsn, conversation(30, seed=number, participants=people)))
    alone = installation.databases.copy(installation.database)
    node.environment["MYRIA_BUILDER_TASK_LEASE_S"] = "3"
    installation.start()
    with stopped_in_their_tasks(installation):
        place.rebuild("shared", build={"parallelism": 4, "full": True})
        wait_until(lambda: len(at_work(installation)) == 4, 60, "four pods, each at a task")
        killed, frozen, *others = node.running()
        held = at_work(installation)[killed.pid]
        (before,) = installation.query("SELECT attempt FROM myria.build_tasks WHERE scope_id = $1", held)
        node.kill(killed.name)
        killed.process.wait()
        os.killpg(frozen.pid, signal.SIGSTOP)
        (task,) = installation.query("SELECT * FROM myria.build_tasks WHERE scope_id = $1", held)
        assert (task["status"], task["attempt"]) == ("pending", before["attempt"])
    ended = place.wait_terminal("shared", 90)
    assert reason(ended) == ("True", "BuildPublished")
    assert ended["status"]["progress"] == {"tasks": SCOPES, "done": SCOPES, "degraded": 0}

    (job,) = place.jobs_of(ended)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (4, 4)

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in place.pods_of(job["metadata"]["name"])}

    wait_until(lambda: "Succeeded" in phases().values(), 30, "a pod that exits 0")
    assert phases()[frozen.name] == "Running"
    node.kill(frozen.name)
    wait_until(lambda: place.jobs_of(ended)[0]["status"].get("completionTime"), 60, "the end of the Job")
    found = phases()
    assert (found[killed.name], found[frozen.name]) == ("Failed", "Failed")
    assert sorted(found.values()) == ["Failed"] * 2 + ["Succeeded"] * 4
    assert place.get("shared")["status"] == ended["status"]

    tasks = installation.query("SELECT worker, attempt, status FROM myria.build_tasks")
    assert [task["status"] for task in tasks] == ["done"] * SCOPES
    did = {int(task["worker"].split(":")[1]) for task in tasks}
    assert {one.pid for one in others} <= did
    assert not {killed.pid, frozen.pid} & did
    assert sum(task["attempt"] > 1 for task in tasks) >= 2, "what the dead had begun was begun again"

    single = run(builds.build(alone, full=True))
    assert single.snapshot_id is not None
    trees = run(builds.roots(installation.database, ended["status"]["snapshotID"]))
    assert len(trees) == SCOPES
    assert trees == run(builds.planned(installation.database, ended["status"]["cutoff"]))
    assert trees == run(builds.roots(alone, single.snapshot_id))
    shared = run(builds.contents(installation.database, ended["status"]["snapshotID"]))
    assert shared == run(builds.contents(alone, single.snapshot_id))
    by_one = run(builds.rows(alone, "SELECT node_id FROM myria.nodes"))
    assert nodes(installation) == {row["node_id"] for row in by_one}
    installation.databases.drop(alone)
