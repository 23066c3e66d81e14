"""A MyriaRebuild goes the whole way on a real API server: apply, Job, pod, build, publish, status."""

from __future__ import annotations

from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.settings import Settings
from tests.kubernetes.api import Json, condition
from tests.kubernetes.instant import play_pods
from tests.kubernetes.manifests import EXAMPLES
from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.serving import Seen, Serving
from tests.support.processes import Spawner, wait_until


def test_a_rebuild_is_applied_built_published_served_and_rolled_back(
    installation: Installation, spawn: Spawner
) -> None:
    """The examples work: kubectl waits for a rebuild, its snapshot is what the MCP server serves; rollback, at once."""
    place = installation.place
    installation.node.rewrites = as_written
    installation.append(12)
    server = Serving(spawn, installation.database)
    before = server.ask("ana", "ben")
    assert (before.snapshot_id, before.indexed, len(before.fresh)) == (None, frozenset(), 12)
    installation.start()
    place.kubectl("apply", "-f", EXAMPLES / "rebuild.yaml", who="anna")
    place.kubectl("wait", "mrb/rebuild", "--for=condition=Succeeded", "--timeout=180s", who="anna")

    served = server.ask("ana", "ben")
    first = place.get("rebuild")
    assert reason(first) == ("True", "BuildPublished")
    assert reason(first, "Published") == ("True", "BuildPublished")
    assert reason(first, "Suspended") == ("False", "NotSuspended")
    status = first["status"]
    assert served == Seen(snapshot_id=status["snapshotID"], indexed=before.fresh, fresh=frozenset())
    assert status["eventRange"] == {"first": min(served.indexed), "last": max(served.indexed)}
    assert status["cutoff"] == max(served.indexed)
    assert status["progress"] == {"tasks": 1, "done": 1, "degraded": 0}
    assert status["counts"]["events"] == 12
    assert "previousSnapshotID" not in status
    (job,) = place.jobs_of(first)
    assert job["metadata"]["name"] == status["jobName"]

    play_pods(installation)
    installation.append(8, seed=2, start=50_000)
    more = server.ask("ana", "ben")
    assert (more.snapshot_id, more.indexed, len(more.fresh)) == (status["snapshotID"], served.indexed, 8)
    place.rebuild("second")
    second = place.wait_terminal("second")
    assert server.ask("ana", "ben") == Seen(
        snapshot_id=second["status"]["snapshotID"], indexed=served.indexed | more.fresh, fresh=frozenset()
    )
    assert reason(second) == ("True", "BuildPublished")
    assert second["status"]["previousSnapshotID"] == status["snapshotID"]

    place.kubectl("apply", "-f", EXAMPLES / "rollback.yaml", who="anna")
    place.kubectl("wait", "mrb/rollback", "--for=condition=Published", "--timeout=180s", who="anna")
    assert server.ask("ana", "ben") == more  # what the abandoned snapshot had indexed is fresh again
    back = place.get("rollback")
    assert reason(back) == ("True", "RolledBack")
    assert back["status"]["snapshotID"] == status["snapshotID"]
    assert reason(place.get("second"), "Published") == ("True", "BuildPublished")
    (move,) = installation.query("SELECT * FROM myria.pointer_moves WHERE kind = 'rollback'")
    assert (move["resource_name"], move["resource_uid"]) == ("rollback", back["metadata"]["uid"])
    assert move["manager"].startswith("kubectl")
    assert move["reason"].startswith("Answers about invoices")


def test_a_rebuild_without_news_changes_nothing(installation: Installation) -> None:
    """It succeeds as NothingToDo, full or not, and leaves no snapshot; force gives one, which previous passes over."""
    place = installation.place
    installation.start()
    ids = []
    for number in range(2):
        installation.append(8, seed=number, start=number * 50_000)
        place.rebuild(f"new-{number}")
        ids.append(place.wait_terminal(f"new-{number}")["status"]["snapshotID"])

    for name, how in (("again", {}), ("again-full", {"full": True})):
        place.rebuild(name, build=how)
        ended = place.wait_terminal(name)
        assert reason(ended) == ("True", "NothingToDo")
        assert reason(ended, "Published") == ("False", "NothingToDo")
        assert "snapshotID" not in ended["status"]
        assert ended["status"]["previousSnapshotID"] == ids[1]
    assert len(installation.query("SELECT * FROM myria.snapshots")) == 2

    place.rebuild("forced", build={"force": True})
    assert reason(place.wait_terminal("forced")) == ("True", "BuildPublished")
    place.rebuild("back", rollback={"to": "previous"})
    assert place.wait_terminal("back")["status"]["snapshotID"] == ids[0]


def test_abort_ends_a_build_and_its_pods(installation: Installation) -> None:
    """Abort while a pod cannot start: the build ends aborted, the Job is stopped, the slot is free."""
    place = installation.place
    installation.append(12)
    installation.node.accepts = lambda _pod: False
    installation.start()
    place.rebuild("stuck")
    place.wait_condition("stuck", "Succeeded", ("Unknown",))
    wait_until(lambda: place.jobs_of(place.get("stuck")), 20, "the Job")
    place.admin.patch("MyriaRebuild", "stuck", {"spec": {"abort": True}}, place.name)
    ended = place.wait_terminal("stuck")
    assert reason(ended) == ("False", "Aborted")
    assert reason(ended, "Published") == ("False", "Aborted")

    def stopped() -> bool:
        (job,) = place.jobs_of(ended)
        return not job["status"].get("active")

    wait_until(stopped, 20, "the end of the Job's pods")
    installation.node.accepts = lambda _pod: True
    place.rebuild("next")
    assert reason(place.wait_terminal("next")) == ("True", "BuildPublished")


def test_a_build_that_an_administrator_gives_up_ends_its_resource(installation: Installation) -> None:
    """Given up as the console does: the condition says by whom and why, the Job ends, and only new events build. So it
    is with one that waits: it never gets a Job."""
    place = installation.place
    installation.append(12)
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", 'sleep 3600; exec "$@"', "sh", *command]
    installation.start(builder_max_unindexed_events="1")
    wait_until(installation.node.running, 60, "a pod")
    (build,) = installation.builds()

    async def give_up(name: str) -> Json:
        async with Pool(installation.database.server_dsn) as pool:
            return await Registry(pool, Settings()).abort("default", name, actor="ada", reason="wrong model")

    async def waiting() -> list[Json]:
        async with Pool(installation.database.server_dsn) as pool:
            return await Registry(pool, Settings()).waiting("default")

    installation.databases.loop.run(give_up(build["build_id"]))
    (resource,) = place.rebuilds()
    ended = place.wait_terminal(resource["metadata"]["name"])
    assert reason(ended) == reason(ended, "Published") == ("False", "Aborted")
    assert "given up by ada: wrong model" in condition(ended, "Succeeded")["message"]

    def stopped() -> bool:
        (job,) = place.jobs_of(ended)
        return not job["status"].get("active") and not installation.node.running()

    wait_until(stopped, 20, "the end of the Job's pods")
    play_pods(installation)
    place.rebuild("later")
    assert reason(place.wait_terminal("later")) == ("True", "BuildPublished")
    # The trigger had the time of a whole build to try the same events again.
    assert [one["status"] for one in installation.builds()] == ["aborted", "succeeded"]
    installation.append(2, seed=2, start=50_000)
    wait_until(
        lambda: len(installation.builds()) == 3 and installation.builds()[2]["finished_at"], 60, "the next build"
    )
    assert installation.builds()[2]["trigger"] == "tail_threshold"
    place.rebuild("paused", suspend=True)
    wait_until(lambda: installation.databases.loop.run(waiting()), 20, "the request")
    (request,) = installation.databases.loop.run(waiting())
    assert request["waits_for"] == "suspend"
    installation.databases.loop.run(give_up(request["request_id"]))
    ended = place.wait_terminal("paused")
    assert reason(ended) == reason(ended, "Published") == ("False", "Aborted")
    assert "given up by ada: wrong model" in condition(ended, "Succeeded")["message"]
    assert not place.jobs_of(ended)
    # Its own abort is told in the same way, in the status and in the history of builds.
    place.rebuild("regretted", suspend=True)
    wait_until(lambda: installation.databases.loop.run(waiting()), 20, "the request")
    place.kubectl("patch", "mrb", "regretted", "--type=merge", "-p", '{"spec": {"abort": true}}')
    ended = place.wait_terminal("regretted")
    assert reason(ended) == reason(ended, "Published") == ("False", "Aborted")
    assert "given up by MyriaRebuild regretted: its abort is set" in condition(ended, "Succeeded")["message"]
    given_up = installation.builds()[-1]
    assert (given_up["build_id"], given_up["status"]) == (ended["status"]["buildID"], "aborted")


def test_a_resource_of_another_installation_is_left_alone(installation: Installation) -> None:
    """What carries another installation's id is not touched."""
    place = installation.place
    installation.append(3)
    made: Json = place.rebuild("foreign")
    place.admin.patch(
        "MyriaRebuild", "foreign", {"status": {"installationID": "another"}}, place.name, subresource="status"
    )
    installation.start()
    place.rebuild("ours")
    place.wait_terminal("ours")
    assert place.get("foreign")["status"] == {"installationID": "another"}
    assert place.jobs_of(made) == []
