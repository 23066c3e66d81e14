"""What is left over: builds that nobody owns are ended, resources that the operator made are pruned, and only those."""

from __future__ import annotations

import json
import time

from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS
from myria.db.database import Database as Pool
from myria.log.ids import new_id
from myria.settings import Settings
from myria_operator.sweep import ABANDONED_S
from tests.kubernetes.api import Json
from tests.kubernetes.operating import Installation, reason
from tests.support import builds
from tests.support.processes import wait_until


def test_the_slot_of_a_build_that_nobody_owns_is_free_within_a_minute() -> None:
    """With the default settings: the lease that ends, the patience after it, and one sweep."""
    settings = Settings()
    assert ABANDONED_S + settings.operator.sweep_s <= 60.0
    assert settings.builder.task_lease_s < ABANDONED_S  # who lives is seen to live


def test_builds_that_nobody_owns_are_ended(installation: Installation) -> None:
    """Failed without lease and owner, aborted when the owner is gone; what lives, or is new, is left alone."""
    place, run = installation.place, installation.databases.loop.run
    for tenant in ("ada", "bob", "cyd", "dan", "eve"):
        installation.append(4, tenant=tenant)
    age = f"clock_timestamp() - interval '{ABANDONED_S + 1} seconds'"

    async def prepare() -> None:
        async with Pool(installation.database.dsn) as pool, pool.write(ALL_TENANTS) as connection:
            for tenant, created_at, lease_until, uid in (
                ("ada", age, "NULL", None),
                ("bob", age, "clock_timestamp() + interval '1 hour'", None),
                ("cyd", "clock_timestamp()", "clock_timestamp() + interval '1 hour'", "a uid that is gone"),
                ("dan", "clock_timestamp() + interval '1 hour'", "NULL", None),
                ("eve", age, age, None),
            ):
                await connection.execute(
                    "INSERT INTO myria.builds (tenant_id, build_id, trigger, created_at, lease_until, resource_name, "
                    f"resource_uid) VALUES ($1, $2, 'manual', {created_at}, {lease_until}, $3, $4)",
                    tenant,
                    new_id("bld"),
                    "namesake" if uid else None,
                    uid,
                )

    run(prepare())
    place.rebuild("namesake", tenant="cyd")  # of the same name, but another resource
    installation.start(operator_sweep_s="0.5")

    def outcomes() -> dict[str, tuple[str, str | None]]:
        rows = [one for one in installation.builds() if one["resource_uid"] in {None, "a uid that is gone"}]
        details = {one["tenant_id"]: json.loads(one["error"] or "{}").get("details", {}) for one in rows}
        return {one["tenant_id"]: (one["status"], details[one["tenant_id"]].get("reason")) for one in rows}

    wait_until(lambda: outcomes()["ada"][0] == outcomes()["eve"][0] == "failed", 10, "the end of what nobody owns")
    wait_until(lambda: outcomes()["cyd"][0] == "aborted", 10, "the end of what belongs to a resource that is gone")
    found = outcomes()
    assert found["ada"][1] == found["eve"][1] == "WorkerLost"
    assert found["bob"][0] == found["dan"][0] == "queued"
    place.rebuild("next", tenant="ada")
    for name in ("namesake", "next"):
        assert reason(place.wait_terminal(name)) == ("True", "BuildPublished")


def test_only_resources_of_the_operators_making_are_pruned(installation: Installation) -> None:
    """The newest succeeded and failed one stay, and all that people made; none is made again, whoever starts anew."""
    place, run, dsn = installation.place, installation.databases.loop.run, installation.database.server_dsn
    installation.append(4)
    settings = {
        "operator_keep_succeeded": "1",
        "operator_keep_failed": "1",
        "operator_backoff_limit": "0",
        "operator_sweep_s": "0.5",
        "operator_poll_s": "0.1",
        "builder_backoff_base_s": "0.1",
        "builder_backoff_max_s": "0.1",
    }
    operator = installation.start(**settings)  # type: ignore[arg-type]
    made: list[str] = []

    def named(*, ours: bool) -> list[str]:
        found = [one for one in place.rebuilds() if ("labels" in one["metadata"]) == ours]
        return sorted(one["metadata"]["name"] for one in found)

    async def ask() -> None:
        async with Pool(dsn) as pool:
            await Registry(pool, builds.DEFAULTS).request_build("default", reason="a tool asked", full=True)

    def one_of_the_operator() -> None:
        run(ask())
        wait_until(lambda: set(named(ours=True)) - set(made), 40, "the resource")
        (name,) = set(named(ours=True)) - set(made)
        made.append(name)
        wait_until(lambda: ended(place.admin.find("MyriaRebuild", name, place.name)), 60, "its end")

    for number in range(2):
        place.rebuild(f"person-{number}", build={"full": True})
        place.wait_terminal(f"person-{number}")
        one_of_the_operator()
    installation.node.rewrites = lambda _pod, _command: ["/bin/false"]
    for number in range(2):
        place.rebuild(f"failing-{number}", build={"full": True})
        place.wait_terminal(f"failing-{number}")
        one_of_the_operator()
    wait_until(lambda: named(ours=True) == sorted([made[1], made[3]]), 40, "the pruning")
    people = ["failing-0", "failing-1", "person-0", "person-1"]
    assert named(ours=False) == people

    operator.kill()
    installation.start(**settings)  # type: ignore[arg-type]
    time.sleep(2.0)
    assert named(ours=True) == sorted([made[1], made[3]])
    assert named(ours=False) == people
    assert len(installation.builds()) == 8


def ended(found: Json | None) -> bool:
    """Tell whether a resource is terminal, or was pruned already."""
    return found is None or reason(found)[0] in {"True", "False"}
