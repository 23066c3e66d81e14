"""The operator stopped before each of its writes, and then after it: others go on, and nothing happens twice."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria_operator.app import NEEDED
from myria_operator.ledger import Ledger
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import JOBS, ObjectKind
from tests.kubernetes.api import Json
from tests.kubernetes.failpoints import API_WRITES, LEDGER_READS, LEDGER_WRITES, arm
from tests.kubernetes.inside import QUICK, Stopped, operator, until
from tests.kubernetes.instant import play_pods
from tests.kubernetes.operating import Installation, reason
from tests.support import builds
from tests.support.events import append, conversation
from tests.support.patience import PATIENCE_S


class Killer:
    """Stops an operator before each of some writes, and one that comes so far after it."""

    def __init__(self, writes: Iterable[str]) -> None:
        self.left = {f"{at}:{what}" for what in writes for at in ("before", "after")}
        self.reached = asyncio.Event()

    def __call__(self, passed: str) -> None:
        if passed in self.left and not self.reached.is_set():
            self.left.remove(passed)
            self.reached.set()
            raise Stopped(passed)


STORIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("plain", ("patch myriarebuilds/status", "ask", "take_up", "create events")),
    ("plain", ("create jobs",)),
    ("plain", ("note_job",)),
    ("failing", ("end_build",)),
    ("aborted", ("abort", "patch jobs")),
    ("suspended", ("suspend_build", "patch jobs")),
    ("suspended_early", ("suspend_request",)),
    ("unwanted", ("close_request",)),
    ("approved", ("publish",)),
    ("rolled_back", ("roll_back",)),
    ("given_up", ("give_up",)),
    ("requested", ("name_resource", "create myriarebuilds", "adopt", "delete myriarebuilds")),
    ("deleted", ("delete jobs",)),
)
"""A story, and writes that it passes; once there is a Job, the build goes on without an operator."""


def test_every_write_is_in_a_story() -> None:
    """A new write of the operator needs a story here: its permission, or its method, says that there is one."""
    assert {what for _, writes in STORIES for what in writes} == API_WRITES | LEDGER_WRITES
    assert {f"{verb} {resource}" for _, resource, verb in NEEDED if verb in {"create", "patch", "delete"}} == API_WRITES
    methods = {name for name, one in inspect.getmembers(Ledger, inspect.iscoroutinefunction) if name[0] != "_"}
    assert methods == LEDGER_WRITES | LEDGER_READS


@pytest.mark.parametrize(("named", "writes"), STORIES, ids=[f"{named}: {writes[0]}" for named, writes in STORIES])
async def test_stopped_at_a_write(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, named: str, writes: tuple[str, ...]
) -> None:
    """One operator is stopped before each write and one after it; the last brings the resource to the same end."""
    await append(installation.database.server_dsn, conversation(12))
    play_pods(installation, always=True)
    killer = Killer(writes)
    arm(monkeypatch, killer)
    story = Story(installation, monkeypatch)
    await story.begin(named)
    middle = asyncio.create_task(story.middle(named))
    for _ in tuple(killer.left):
        killer.reached.clear()
        async with operator(installation, monkeypatch) as stopped:
            reached = asyncio.create_task(killer.reached.wait())
            # Kubernetes' garbage collector may be faster than the operator: then there is no Job left to delete.
            patience = 5 if named == "deleted" else PATIENCE_S
            await asyncio.wait({stopped, reached}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            assert killer.reached.is_set() or named == "deleted", f"{killer.left} were never passed"
            reached.cancel()
    async with operator(installation, monkeypatch):
        await middle
        await story.end(named)


async def test_a_resource_deleted_during_a_look_ends_its_build_as_aborted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator has read the resource and is slow; then resource and Job are deleted: no worker was lost."""
    place, release, slow = installation.place, asyncio.Event(), asyncio.Event()
    installation.node.accepts = lambda _pod: False
    await append(installation.database.server_dsn, conversation(12))
    await asyncio.to_thread(place.rebuild, "one")
    get = Connection.get

    async def hesitate(api: Connection, kind: ObjectKind, name: str) -> Json | None:
        if kind != JOBS:
            return await get(api, kind, name)
        shown = await asyncio.to_thread(place.admin.find, "MyriaRebuild", "one", place.name)
        if shown is not None and reason(shown)[1] in {"Starting", "PodNotStarting"}:
            slow.set()
            await release.wait()
        return await get(api, kind, name)

    monkeypatch.setattr(Connection, "get", hesitate)
    async with operator(installation, monkeypatch):
        await asyncio.wait_for(slow.wait(), PATIENCE_S)
        await asyncio.to_thread(place.admin.delete, "MyriaRebuild", "one", place.name)
        await until(lambda: not place.admin.objects("Job", place.name))
        release.set()
        await until(lambda: [one["finished_at"] is None for one in installation.builds()] == [False])
    assert [one["status"] for one in installation.builds()] == ["aborted"]


class Story:
    """What people and Kubernetes do around one kill, and what must come of it."""

    def __init__(self, installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installation = installation
        self.place = installation.place
        self._monkeypatch = monkeypatch

    async def begin(self, name: str) -> None:
        """What is there before the operator."""
        if name in {"aborted", "suspended", "deleted"}:
            self.installation.node.accepts = lambda _pod: False
        if name == "failing":
            self.installation.node.rewrites = lambda _pod, _command: ["/bin/true"]
        if name == "requested":
            async with Pool(self.installation.database.server_dsn) as pool:
                await Registry(pool, QUICK).request_build("default", reason="a tool asked")
            return
        if name == "rolled_back":
            for start in (0, 50_000):
                await append(self.installation.database.server_dsn, conversation(4, start=start))
                await builds.build(self.installation.database)
        spec: dict[str, Any] = {}
        if name == "unwanted":
            spec = {"suspend": True}
        if name == "approved":
            spec = {"approve": True, "build": {"publish": "Hold"}}
        if name == "rolled_back":
            spec = {"rollback": {"to": "previous"}}
        if name == "given_up":
            spec = {"rollback": {"to": "previous"}}
        if name == "suspended_early":
            await asyncio.to_thread(self.place.rebuild, "one", suspend=True)
            return
        await asyncio.to_thread(self.place.rebuild, "one", spec)

    async def middle(self, name: str) -> None:
        """What happens while an operator runs, or none does."""
        if name in {"aborted", "suspended", "deleted"}:
            await until(lambda: self.place.admin.objects("Job", self.place.name))
        if name == "aborted":
            await self._change(abort=True)
        if name == "suspended":
            await self._change(suspend=True)
        if name == "deleted":
            # Nobody is told who else might delete the Job: the garbage collector looks for it as well.
            await asyncio.to_thread(self.place.admin.delete, "MyriaRebuild", "one", self.place.name)
        if name == "suspended_early":
            await until(lambda: reason(self.place.get("one")) == ("Unknown", "SuspendRequested"))
            await until(lambda: [one["suspended"] for one in self._requests()] == [True])
            await self._change(suspend=False)
        if name == "unwanted":
            await until(lambda: reason(self.place.get("one")) == ("Unknown", "SuspendRequested"))
            await until(self._requests)
            await asyncio.to_thread(self.place.admin.delete, "MyriaRebuild", "one", self.place.name)

    async def end(self, name: str) -> None:
        """What must come of it."""
        if name == "requested":
            # Pruned at once (no history is kept), and never made again.
            await until(lambda: self.installation.active() is not None and not self.place.rebuilds())
            await self._looked_again()
            assert self.place.rebuilds() == []
            assert len(self.installation.builds()) == 1
            return
        if name == "deleted":
            await until(lambda: [one["status"] for one in self.installation.builds()] == ["aborted"])
            await until(lambda: not self.place.admin.objects("Job", self.place.name))
            return
        if name == "unwanted":
            closed = "SELECT 1 FROM myria.rebuild_requests WHERE closed_at IS NOT NULL"
            await until(lambda: self.installation.query(closed))
            assert not self.installation.builds()
            return
        if name == "suspended":
            await until(lambda: reason(self.place.get("one"), "Suspended") == ("True", "SuspendRequested"))
            await until(lambda: not self.place.jobs_of(self.place.get("one"))[0]["status"].get("active"))
            self.installation.node.accepts = lambda _pod: True
            await self._change(suspend=False)
        await until(lambda: reason(self.place.get("one"))[0] in {"True", "False"})
        found = self.place.get("one")
        expected = {
            "failing": ("False", "WorkerLost"),
            "aborted": ("False", "Aborted"),
            "approved": ("True", "Held"),
            "rolled_back": ("True", "RolledBack"),
            "given_up": ("False", "NoPreviousSnapshot"),
        }
        assert reason(found) == expected.get(name, ("True", "BuildPublished")), found["status"]
        jobs = self.place.jobs_of(found)
        assert len(jobs) == (0 if name in {"rolled_back", "given_up"} else 1)
        if name == "approved":
            await until(lambda: reason(self.place.get("one"), "Published") == ("True", "Approved"))
        mine = [one for one in self.installation.builds() if one["resource_uid"] == found["metadata"]["uid"]]
        assert len(mine) == len(jobs)
        assert all(one["finished_at"] is not None for one in mine)
        if name == "aborted":
            await until(lambda: not self.place.jobs_of(found)[0]["status"].get("active"))
        moves = self.installation.query("SELECT kind FROM myria.pointer_moves WHERE resource_uid IS NOT NULL")
        assert len(moves) == (0 if name in {"failing", "aborted", "given_up"} else 1)

    async def _looked_again(self) -> None:
        """Wait until the operator has asked the database a few times more what is new."""
        looks = 0
        look = Ledger.changed

        async def counted(ledger: Ledger) -> Any:
            nonlocal looks
            looks += 1
            return await look(ledger)

        self._monkeypatch.setattr(Ledger, "changed", counted)
        await until(lambda: looks > 5)

    def _requests(self) -> list[dict[str, Any]]:
        return self.installation.query("SELECT suspended FROM myria.rebuild_requests WHERE resource_uid IS NOT NULL")

    async def _change(self, **spec: bool) -> None:
        await asyncio.to_thread(self.place.admin.patch, "MyriaRebuild", "one", {"spec": spec}, self.place.name)
