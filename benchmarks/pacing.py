"""An hour of appends as the triggers see it: how many builds start, how long they run, how fresh the tree is.

First real builds of growing numbers of new events are measured, on a real PostgreSQL, and a line is laid through what
they took. Then an hour passes on a simulated clock: one tenant that appends steadily and many that talk now and then.
Twice a second the real decision (`myria.due.due`) is asked for each tenant, as the control loop does; a build takes the
time of the line, and at most so many run at once. Appends, PostgreSQL and the builders are simulated in this part.

    python -m benchmarks.pacing [--s-per-build S --ms-per-event MS]

The two options take the costs as given instead of measuring them. Measure on a quiet machine: the line is laid through
seconds, not through CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from benchmarks import synthetic
from benchmarks.building import build
from benchmarks.cluster import Cluster
from benchmarks.prepared import load
from myria.due import Due, NewestBuild, Tail, TriggerState, due
from myria.settings import BuilderSettings

SIZES = (100, 1_000, 5_000, 20_000)
HOUR_S = 3600.0
POLL_S = 0.5
QUIET_TENANTS = 50
MAX_BUILDS = 4
_THEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a build takes: seconds for itself, and milliseconds for each new event."""

    s_per_build: float
    ms_per_event: float

    def seconds(self, events: int) -> float:
        """Return what a build of so many new events takes."""
        return self.s_per_build + events * self.ms_per_event / 1000


@dataclass(slots=True, kw_only=True)
class Tenant:
    """A tenant: when its events come, in seconds of the hour, and what became of them."""

    arrivals: list[float]
    came: int = 0
    built: int = 0
    cutoff: int = 0
    ends_at: float | None = None
    last: tuple[float, float] | None = None
    durations: list[float] = field(default_factory=list)
    tails: list[int] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)

    def state(self, now: float) -> TriggerState:
        """Return what the statement `triggers.state` would return."""
        newest = None
        if self.last is not None:
            ended_at, took_s = self.last
            newest = NewestBuild(
                build_id=str(len(self.durations)),
                status="succeeded",
                cutoff=self.built,
                transient=False,
                created_at=_THEN,
                finished_at=_THEN,
                ended_s=now - ended_at,
                took_s=took_s,
            )
        return TriggerState(
            cutoff=self.built, attempted_cutoff=self.built, moved_at=None, paused=False, retry_in_s=None, newest=newest
        )

    def tail(self, now: float, settings: BuilderSettings) -> Tail | None:
        """Return the tail as the log would describe it."""
        waiting = self.came - self.built
        if not waiting:
            return None
        return Tail(
            last_event_seq=self.came,
            last_ingested_at=_THEN,
            quiet_s=now - self.arrivals[self.came - 1],
            reaches_threshold=waiting >= settings.max_unindexed_events,
            is_long=waiting >= settings.long_tail_events,
            outgrows_tree=waiting >= self.built,
        )


def steady(events_per_s: float) -> Tenant:
    """Return a tenant that appends all the time."""
    return Tenant(arrivals=[number / events_per_s for number in range(int(HOUR_S * events_per_s))])


def quiet(chosen: random.Random) -> Tenant:
    """Return a tenant that talks for two minutes, some ten seconds a message, about every quarter of an hour."""
    at, arrivals = chosen.uniform(0, 900), []
    while at < HOUR_S:
        begun = at
        while at < min(begun + 120, HOUR_S):
            arrivals.append(at)
            at += chosen.expovariate(0.1)
        at += chosen.expovariate(1 / 780)
    return Tenant(arrivals=arrivals)


def pass_hour(tenants: list[Tenant], settings: BuilderSettings, cost: Cost) -> None:
    """Simulate the hour."""
    now = 0.0
    while now < HOUR_S:
        for tenant in tenants:
            while tenant.came < len(tenant.arrivals) and tenant.arrivals[tenant.came] <= now:
                tenant.came += 1
            if tenant.ends_at is not None and tenant.ends_at <= now:
                tenant.built, tenant.last = tenant.cutoff, (tenant.ends_at, tenant.durations[-1])
                tenant.ends_at = None
        running = sum(tenant.ends_at is not None for tenant in tenants)
        for tenant in tenants:
            if tenant.ends_at is None and running < MAX_BUILDS:
                waiting = tenant.tail(now, settings)
                if waiting is not None and isinstance(due(tenant.state(now), waiting, settings), Due):
                    tenant.cutoff = tenant.came
                    tenant.durations.append(cost.seconds(tenant.came - tenant.built))
                    tenant.ends_at = now + tenant.durations[-1]
                    running += 1
            tenant.tails.append(tenant.came - tenant.built)
            tenant.ages.append(now - tenant.arrivals[tenant.built] if tenant.came > tenant.built else 0.0)
        now += POLL_S


def table_line(name: str, tenants: list[Tenant]) -> str:
    """Return one line of the table."""
    builds = sum(len(tenant.durations) for tenant in tenants)
    seconds = sum(sum(tenant.durations) for tenant in tenants)
    most = max(sum(tenant.durations) for tenant in tenants) / HOUR_S
    tails = sorted(tail for tenant in tenants for tail in tenant.tails)
    ages = sorted(age for tenant in tenants for age in tenant.ages)
    events = sum(tenant.came for tenant in tenants)
    indexed = sum(tenant.built for tenant in tenants)
    return (
        f"| {name} | {builds} | {seconds:,.0f} s | {100 * most:.1f} % | {tails[len(tails) // 2]:,} / {tails[-1]:,} | "
        f"{ages[len(ages) // 2]:,.0f} / {ages[-1]:,.0f} s | {100 * indexed / events:.1f} % |"
    )


def _lines(count: int, seed: int) -> Iterator[bytes]:
    for number, event in enumerate(synthetic.events(count, sets=60, seed=seed)):
        del event["conversation"]
        yield orjson.dumps({**event, "source_event_key": f"{seed}-{number}"})


async def measure() -> Cost:
    """Build real events, and lay a line through what the builds took (least squares)."""
    with TemporaryDirectory() as folder:
        work = Path(folder)
        async with Cluster(work) as cluster:
            dsns = await cluster.create("pacing")
            await load(dsns.server, _lines(5_000, 1), total=5_000, what="filling")
            await build(dsns, work / "log")
            points = []
            for count in SIZES:
                await load(dsns.server, _lines(count, count + 1), total=count, what=f"{count:,} new events")
                built = await build(dsns, work / "log")
                points.append((count, built.seconds))
                print(f"{count:,} new events: {built.seconds:.2f} s, {built.cpu_s:.2f} s of the builder's CPU")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return Cost(s_per_build=max(0.1, mean_y - slope * mean_x), ms_per_event=1000 * slope)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--s-per-build", type=float)
    parser.add_argument("--ms-per-event", type=float)
    parser.add_argument("--events-per-s", type=float, default=200.0)
    options = parser.parse_args()
    if options.s_per_build is None or options.ms_per_event is None:
        cost = asyncio.run(measure())
    else:
        cost = Cost(s_per_build=options.s_per_build, ms_per_event=options.ms_per_event)
    print(f"a build takes {cost.s_per_build:.2f} s and {cost.ms_per_event:.2f} ms for each new event\n")
    print("| tenants | builds | building | busiest tenant | tail p50 / most | oldest waits p50 / most | in the tree |")
    print("|---|---|---|---|---|---|---|")
    paced = BuilderSettings()
    for name, settings in (
        ("as it is", paced),
        ("without pacing", replace(paced, min_interval_s=0.0, time_share=1.0, long_tail_time_share=1.0)),
    ):
        chosen = random.Random(1)
        busy, others = steady(options.events_per_s), [quiet(chosen) for _ in range(QUIET_TENANTS)]
        pass_hour([busy, *others], settings, cost)
        print(table_line(f"{options.events_per_s:g} events/s, {name}", [busy]))
        print(table_line(f"{QUIET_TENANTS} quiet ones, {name}", others))


if __name__ == "__main__":
    main()
