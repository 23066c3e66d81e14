"""`myria rebuild`, `abort`, `publish`, `discard`, `rollback`, `resume`: start and end builds, choose the snapshot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import BuildNotFound, DatabaseUnavailable, MyriaError, UnavailableError
from myria_cli import console
from myria_cli.console import count
from myria_cli.options import Options, Shown, actor, command
from myria_cli.place import Place, administration_of, has_running_up, opened

if TYPE_CHECKING:
    from myria.builds.administration import Administration
    from myria.builds.snapshots import Registry
    from myria.settings import Settings

logger = logging.getLogger(__name__)

Json = dict[str, Any]

PANEL = "Builds and snapshots"
POLL_S = 0.2
NOBODY_AFTER_S = 15.0
"""Seconds without progress after which the command says that nothing seems to run builds."""

Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]
Held = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Id or number of the held snapshot.")]

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "rebuild")
async def rebuild(
    options: Options,
    *,
    full: Annotated[bool, typer.Option("--full", help="Plan every scope anew, not only what changed.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Keep the snapshot back until `myria publish`.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Make a snapshot even if nothing is new.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the build has ended, with its status.")] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Build in this process instead of leaving it to a running `myria up`.")
    ] = False,
    reason: Reason = None,
) -> int:
    """Ask for a build. A running `myria up` (or operator) takes it up; where none runs, it is built here and now.

    Where nothing is new since the active snapshot, the build ends without one (nothing_to_do).

    With --wait, exit 0: published, held or nothing to do; 4: superseded or aborted; 7: failed.

    Examples:
        myria rebuild --wait
        myria rebuild --full --hold --reason 'new planner settings' --wait
    """
    from myria.builds.administration import Administration
    from myria.builds.model import Outcome

    settings = options.settings()
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(opened(options, settings))
        administration = await stack.enter_async_context(Administration(place.serving, settings))
        work = administration.registry.request_build(
            options.tenant, full=full, hold=hold, force=force, reason=reason, actor=actor()
        )
        request = await _record_in_journal(administration, options, "trigger_build", {"reason": reason}, work)
        here = here or not has_running_up(place)
        if not (here or wait):
            asked = f"asked for a build ({request['request_id']}); `myria status` tells how it goes"
            options.answer(request, asked)
            return 0
        builder = await stack.enter_async_context(_run_builder(options, settings, place)) if here else None
        build = await _wait_for_end(administration.registry, options, request["request_id"], builder)
    options.answer(build, *_ending(build))
    return Outcome(build["status"]).exit_status


@command(app, "abort")
async def abort(
    options: Options,
    *,
    build: Annotated[
        str | None,
        typer.Argument(
            metavar="BUILD",
            help="Id of the build, or of the request; left out: the unfinished one, else the request that is next.",
        ),
    ] = None,
    reason: Reason = None,
) -> None:
    """Give up a build that waits, is queued, running or held. The active snapshot stays; new events start the next
    build.

    Examples:
        myria abort --reason 'wrong model'
        myria abort bld_0193c1…
    """
    async with administration_of(options) as administration:
        registry = administration.registry

        async def work() -> Json:
            build_id = build or await _unfinished(registry, options.tenant)
            return await registry.abort(options.tenant, build_id, actor=actor(), reason=reason)

        given = {"build_id": build, "reason": reason}
        answer = await _record_in_journal(administration, options, "abort_build", given, work())
    options.answer(answer, f"gave up {answer['build_id']}; `myria rebuild` builds its events again at once")


async def _unfinished(registry: Registry, tenant: str) -> str:
    """Return the tenant's unfinished build, or the request that is taken up next.

    Raises:
        BuildNotFound: every build has ended, and nothing waits.
    """
    status = await registry.status(tenant)
    newest = status["last_build"]
    if newest is not None and newest["finished_at"] is None:
        return str(newest["build_id"])
    if status["waiting"]:
        return str(status["waiting"][0]["request_id"])
    raise BuildNotFound("no build waits, is queued or runs; name one that is held")


@command(app, "publish")
async def publish(options: Options, *, snapshot: Held, reason: Reason = None) -> None:
    """Make a held snapshot the active one (compare-and-set: fails when its parent is no longer active).

    Examples:
        myria publish snap_0193c1… --reason 'looked at the labels'
    """
    moved = await _act_on_snapshot(options, "publish_snapshot", snapshot, reason)
    options.answer(moved, f"published {_pointer_text(moved)}")


@command(app, "discard")
async def discard(options: Options, *, snapshot: Held, reason: Reason = None) -> None:
    """Give up a held snapshot for good. Automatic builds no longer wait for it; new events start the next one.

    Examples:
        myria discard snap_0193c1… --reason 'labels went wrong'
    """
    answer = await _act_on_snapshot(options, "discard_snapshot", snapshot, reason)
    options.answer(answer, f"gave up {answer['snapshot_id']}; `myria rebuild` builds its events again at once")


@command(app, "rollback")
async def rollback(
    options: Options,
    *,
    snapshot: Annotated[
        str | None,
        typer.Argument(metavar="SNAPSHOT", help="Id or number of where to; left out: the last one that differs."),
    ] = None,
    reason: Reason = None,
) -> None:
    """Make an earlier snapshot the active one. What it does not cover is served from the log.

    Automatic builds pause until `myria resume`, a manual rebuild or a publish: a rollback must not undo itself.

    Examples:
        myria rollback --reason 'bad import'
        myria rollback 3
    """
    moved = await _act_on_snapshot(options, "rollback", snapshot, reason)
    options.answer(
        moved,
        f"rolled back to {_pointer_text(moved)}",
        "automatic builds are paused; `myria resume` lets them run again",
    )


@command(app, "resume")
async def resume(options: Options, *, reason: Reason = None) -> None:
    """Let automatic builds run again after a rollback.

    Examples:
        myria resume --reason 'the import is mended'
    """
    async with administration_of(options) as administration:
        work = administration.registry.resume(options.tenant, actor=actor(), reason=reason)
        answer = await _record_in_journal(administration, options, "resume_builds", {"reason": reason}, work)
    options.answer(answer, "automatic builds run again" if answer["resumed"] else "automatic builds were not paused")


async def _act_on_snapshot(options: Options, action: str, snapshot: str | None, reason: str | None) -> Json:
    """Publish, discard or roll back a snapshot, and record that in the journal of access.

    Args:
        action: the name of the admin tool that does the same.
        snapshot: its id, its number or `active`; None leaves the choice to the rollback.
    """
    from myria.builds.browse import find_snapshot

    async with administration_of(options) as administration:

        async def work() -> Json:
            snapshot_id = snapshot
            if snapshot is not None:
                async with administration.database.read(options.tenant) as connection:
                    snapshot_id = (await find_snapshot(connection, options.tenant, snapshot)).snapshot_id
            registry = administration.registry
            methods: dict[str, Callable[..., Awaitable[Json]]] = {
                "publish_snapshot": registry.publish,
                "discard_snapshot": registry.discard,
                "rollback": registry.rollback,
            }
            return await methods[action](options.tenant, snapshot_id, actor=actor(), reason=reason)

        given = {"snapshot_id": snapshot, "reason": reason}
        return await _record_in_journal(administration, options, action, given, work())


async def _record_in_journal(
    administration: Administration, options: Options, action: str, given: Json, work: Awaitable[Json]
) -> Json:
    """Await `work`, and write into the journal of access who did it and how it ended; return its answer."""
    from myria.access.journal import Act, Journal

    journal = Journal(administration.appending, administration.settings.audit)
    act = Act(tenant=options.tenant, actor=actor(), action=action)
    try:
        answer = await work
    except UnavailableError:
        raise  # nothing was done, and nothing can be written
    except MyriaError as error:
        await journal.command(replace(act, outcome=error.code), given, {})
        raise
    await journal.command(act, {**given, **answer}, answer)
    return answer


def _pointer_text(moved: Json) -> str:
    return f"{moved['snapshot_id']} (before: {moved.get('previous_snapshot_id') or 'none'})"


@asynccontextmanager
async def _run_builder(options: Options, settings: Settings, place: Place) -> AsyncIterator[asyncio.Task[None]]:
    """Run builds in this process for the block; yield the task that does so, which ends only by a serious error.

    An outage of the database is logged and waited out.
    """
    from myria.builds.loop import BuildLoop
    from myria_builder import build as work_on

    async def build(tenant: str, build_id: str) -> int:
        processes = settings.builder.processes
        outcome = await work_on(settings, place.building, tenant, build_id, processes=processes)
        return outcome.exit_status

    async def take_up() -> None:
        async with Database(place.control, pool_options(settings, size=2)) as database:
            loop = BuildLoop(database, settings, launch=build)
            try:
                while True:
                    try:
                        await loop.look(options.tenant)
                    except UnavailableError as error:
                        logger.warning("the build waits: %s", error.message, extra={"action": "build_waits"})
                    await asyncio.sleep(POLL_S)
            finally:
                await loop.close()

    task = asyncio.create_task(take_up())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _wait_for_end(
    registry: Registry, options: Options, request_id: str, builder: asyncio.Task[None] | None
) -> dict[str, Any]:
    """Wait until the build of a request has ended, showing its progress; return the build.

    Args:
        builder: the task that builds in this process; None if another process builds.

    Raises:
        Exception: the error that ended `builder`.
    """
    asked_at = time.monotonic()
    may_warn = builder is None
    with console.meter("waiting for a builder", quiet=options.json) as progress:
        while True:
            try:
                request = await registry.request(options.tenant, request_id)
                build_id = request["build_id"]
                build = None if build_id is None else await registry.build(options.tenant, build_id)
            except DatabaseUnavailable:
                await asyncio.sleep(POLL_S)
                continue
            if build is not None and build["finished_at"] is not None:
                return build
            if builder is not None and builder.done():
                builder.result()
            if build is not None:
                done, total = build["progress"]["tasks_done"], build["progress"]["tasks"]
                progress.advance(done, total or None, "building scopes")
            elif may_warn and time.monotonic() - asked_at > NOBODY_AFTER_S:
                may_warn = False
                console.say(
                    "nobody takes the build up; is a `myria up` running on this database? (or use --here)", "yellow"
                )
            await asyncio.sleep(POLL_S)


def _ending(build: dict[str, Any]) -> Iterator[Shown]:
    """Yield how a build ended, what it changed, and why it is degraded or failed."""
    from myria.builds.model import Degraded, Outcome

    if build["status"] == Outcome.NOTHING_TO_DO:
        nothing_new = f"nothing is new since snapshot {build['parent_snapshot_id']}: it stays the active one"
        yield f"{nothing_new} (--force makes another one all the same)"
    else:
        yield f"build {build['build_id']} {build['status']}: snapshot {build['snapshot_id'] or 'none'}"
    if build["snapshot_id"] is not None:
        new, scopes, leaves = (
            build["counts"].get(name, 0) for name in ("events_new", "scopes_changed", "leaves_planned")
        )
        changed = f"{count(new, 'new event')}, {count(scopes, 'scope')} changed, {count(leaves, 'leaf topic')} planned"
        yield changed, "dim"
    if build["degraded"]:
        yield f"{console.one_line(str(Degraded(**build['degraded'])))}; see docs/llm.md", "yellow"
    if build["error"]:
        yield f"error[{build['error'].get('code')}]: {console.shown(str(build['error'].get('message')))}", "red"
