"""An operator that was slow, beside one that was not: what it does too late changes nothing that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS
from myria.db.database import Database as Pool
from myria_operator.jobs import read_pod_template
from myria_operator.ledger import Ledger, ToMake
from myria_operator.naming import rebuild_name
from myria_operator.observed import MANAGER, Rebuild
from myria_operator.reconcile import Reconciler
from myria_operator.requests import manifest
from myria_rebuilds.connection import Connection, configuration
from myria_rebuilds.resource import JOBS, REBUILDS, Json, ObjectKind
from myria_rebuilds.statements import sql
from tests.kubernetes.failpoints import arm
from tests.kubernetes.inside import QUICK, Stopped, operator, settle, until
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.place import OPERATOR
from tests.support import builds
from tests.support.events import append, conversation


@asynccontextmanager
async def slow_ledger(installation: Installation) -> AsyncIterator[Ledger]:
    """The database as an operator writes it that looked long ago."""
    async with Pool(installation.database.operator_dsn) as pool:
        yield Ledger(pool, QUICK)


def seen(found: Json) -> Rebuild:
    """Return a resource as the operator reads it."""
    return Rebuild.from_object(found)


async def test_a_late_request_of_what_has_ended_takes_no_slot(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is written, or taken up, when its resource has ended neither waits nor builds for long."""
    place = installation.place
    await append(installation.database.server_dsn, conversation(12))
    async with operator(installation, monkeypatch), slow_ledger(installation) as ledger:
        for name in ("asked", "taken-up"):
            looked = seen(await asyncio.to_thread(place.rebuild, name, abort=True))
            await until(lambda name=name: reason(place.get(name)) == ("False", "Aborted"))  # type: ignore[misc]
            await ledger.ask(looked)
            if name == "taken-up":
                await ledger.take_up("default")
        await asyncio.to_thread(place.rebuild, "next")
        await until(lambda: reason(place.get("next")) == ("True", "BuildPublished"))
        assert reason(await asyncio.to_thread(place.get, "taken-up")) == ("False", "Aborted")
    assert all(one["finished_at"] is not None for one in installation.builds())
    waiting = "SELECT * FROM myria.rebuild_requests WHERE build_id IS NULL AND closed_at IS NULL"
    assert installation.query(waiting) == []


@pytest.mark.parametrize("how", ["aborted", "nothing to do"])
async def test_a_late_rollback_does_not_move_the_pointer(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A rollback that ended otherwise never happens, however late an operator comes that once saw it wanted."""
    place = installation.place
    for start in (0, 50_000):
        await append(installation.database.server_dsn, conversation(4, start=start))
        await builds.build(installation.database)
    first, second = sorted(row["snapshot_id"] for row in installation.query("SELECT snapshot_id FROM myria.snapshots"))
    spec = {"rollback": {"to": first}} if how == "aborted" else {"rollback": {"to": second}}
    made = await asyncio.to_thread(place.rebuild, "back", {**spec, "abort": how == "aborted"})
    async with operator(installation, monkeypatch), slow_ledger(installation) as ledger:
        await until(lambda: reason(place.get("back"))[0] in {"True", "False"})
        ended = await asyncio.to_thread(place.get, "back")
        assert reason(ended)[1] == ("Aborted" if how == "aborted" else "NothingToDo")
        if how == "nothing to do":
            async with Pool(installation.database.operator_dsn) as pool:
                await Registry(pool, QUICK).rollback("default", first)
        await ledger.roll_back(seen(made), first if how == "aborted" else second)
        assert installation.active() == (second if how == "aborted" else first)
        assert (await asyncio.to_thread(place.get, "back"))["status"] == ended["status"]


async def test_a_late_approval_does_not_move_the_pointer(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held build that was overtaken is over: it is not published when a rollback brings its parent back."""
    place = installation.place
    await append(installation.database.server_dsn, conversation(4))
    parent = (await builds.build(installation.database)).snapshot_id
    async with operator(installation, monkeypatch), slow_ledger(installation) as ledger:
        await append(installation.database.server_dsn, conversation(4, start=50_000))
        made = await asyncio.to_thread(place.rebuild, "held", build={"publish": "Hold"})
        await until(lambda: reason(place.get("held"), "Published") == ("False", "AwaitingApproval"))
        _, build = await ledger.look(seen(made))
        assert build is not None
        await append(installation.database.server_dsn, conversation(4, start=100_000))
        await builds.build(installation.database)
        await until(lambda: reason(place.get("held"), "Published") == ("False", "ParentMoved"))
        async with Pool(installation.database.operator_dsn) as pool:
            await Registry(pool, QUICK).rollback("default", parent)
        await ledger.publish(seen(made), build)
        assert installation.active() == parent
        assert reason(await asyncio.to_thread(place.get, "held"), "Published") == ("False", "ParentMoved")


async def test_a_second_job_is_taken_back(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Job made for a build that had one before, which is gone since, goes again; the build ends as WorkerLost."""
    place = installation.place
    installation.node.accepts = lambda _pod: False
    await append(installation.database.server_dsn, conversation(12))
    is_noted = False

    def another_was_faster(passed: str) -> None:
        nonlocal is_noted
        if passed == "before:create jobs" and not is_noted:
            is_noted = True
            (build,) = installation.builds()
            installation.databases.loop.run(note("default", build["build_id"]))

    async def note(tenant: str, build_id: str) -> None:
        async with Pool(installation.database.operator_dsn) as pool, pool.write(ALL_TENANTS) as connection:
            assert await connection.fetchval(sql("rebuilds.note_job"), tenant, build_id, "gone") == "gone"

    arm(monkeypatch, another_was_faster)
    await asyncio.to_thread(place.rebuild, "one")
    async with operator(installation, monkeypatch):
        await until(lambda: reason(place.get("one")) == ("False", "WorkerLost"))
        await until(lambda: place.admin.objects("Job", place.name) == [])
    assert is_noted


async def test_a_resource_made_again_is_removed(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cause whose resource was built and deleted has no second one, though a slow operator makes it."""
    place = installation.place
    await append(installation.database.server_dsn, conversation(12))
    async with Pool(installation.database.server_dsn) as pool:
        await Registry(pool, QUICK).request_build("default", reason="a tool asked")
    async with slow_ledger(installation) as ledger:
        looked = await ledger.next_to_make("default")
    assert isinstance(looked, ToMake)
    name = rebuild_name("default", "manual", looked.cause_key)
    async with operator(installation, monkeypatch) as _:
        # It is pruned at once: no history is kept.
        await until(lambda: installation.active() is not None and not place.rebuilds())
        configured, namespace = await configuration()
        async with Connection(configured, namespace, MANAGER) as api:
            await api.create(REBUILDS, manifest(looked, name, namespace))
        await until(lambda: not place.rebuilds())
        assert len(installation.builds()) == 1


async def test_a_name_that_is_taken_anew_meanwhile(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that finds no resource of a name, slowly, does not end the build of one that was made since."""
    place = installation.place
    await append(installation.database.server_dsn, conversation(12))

    async def made_and_taken_up() -> None:
        made = seen(await asyncio.to_thread(place.rebuild, "one"))
        async with slow_ledger(installation) as ledger:
            await ledger.ask(made)
            await ledger.take_up("default")

    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig(OPERATOR)))
    configured, namespace = await configuration()
    async with SlowApi(made_and_taken_up, configured, namespace, MANAGER) as api, slow_ledger(installation) as ledger:
        template = read_pod_template(installation.template)
        slow = Reconciler(api, ledger, template, QUICK.operator)
        assert await settle(slow, "one") is None
    (build,) = installation.builds()
    assert build["status"] == "queued"


async def test_a_job_that_is_made_between_two_looks(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that looks for the Job before another makes it, and at the database after, does not call it lost."""
    place = installation.place
    installation.node.accepts = lambda _pod: False
    await append(installation.database.server_dsn, conversation(12))
    await asyncio.to_thread(place.rebuild, "one")
    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig(OPERATOR)))
    configured, namespace = await configuration()
    template = read_pod_template(installation.template)

    def stopped_before_the_job(passed: str) -> None:
        if passed == "before:create jobs":
            raise Stopped(passed)

    async with Connection(configured, namespace, MANAGER) as api, slow_ledger(installation) as ledger:
        quick = Reconciler(api, ledger, template, QUICK.operator)
        with monkeypatch.context() as armed:
            arm(armed, stopped_before_the_job)
            with pytest.raises(Stopped):
                await settle(quick, "one")
        assert "jobName" in (await asyncio.to_thread(place.get, "one"))["status"]

        async def made() -> None:
            await settle(quick, "one")

        async with SlowApi(made, configured, namespace, MANAGER, after=JOBS) as slow:
            await settle(Reconciler(slow, ledger, template, QUICK.operator), "one")
    (build,) = installation.builds()
    (job,) = place.jobs_of(place.get("one"))
    assert (build["status"], build["job_uid"]) == ("queued", job["metadata"]["uid"])


class SlowApi(Connection):
    """Something happens once between a look at a resource, or at its Job, and whatever is done about it."""

    def __init__(
        self, meanwhile: Callable[[], Awaitable[None]], *arguments: object, after: ObjectKind | None = REBUILDS
    ) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._meanwhile = meanwhile
        self._after = after

    async def get(self, kind: ObjectKind, name: str) -> Json | None:
        """Return an object as it was before."""
        found = await super().get(kind, name)
        if kind == self._after:
            self._after = None
            await self._meanwhile()
        return found
