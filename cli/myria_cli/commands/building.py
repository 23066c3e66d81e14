"""`myria rebuild`: ask for a build, and see it through."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myria.builds.model import Degraded, Outcome
from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import DatabaseUnavailable, UnavailableError
from myria_cli import console
from myria_cli.administering import PANEL, Reason, actor, administered
from myria_cli.draw import count
from myria_cli.options import Options, command
from myria_cli.place import Place, administration_of, is_attended, opened

if TYPE_CHECKING:
    from myria.builds.snapshots import Registry
    from myria.settings import Settings

logger = logging.getLogger(__name__)

POLL_S = 0.3
UNSEEN_POLL_S = 1.0
"""The same where nobody sees the progress, and this process builds: its end is told at once."""
_OUTAGE_POLL_S = 1.0
"""Between two looks at a database that is away."""

NOBODY_AFTER_S = 15.0
"""Seconds without progress after which the command says that nothing seems to run builds."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""

    @command(
        app,
        "rebuild",
        panel=PANEL,
        examples="""
myria rebuild --wait

myria rebuild --full --hold --reason 'new planner settings' --wait
""",
    )
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
        """
        settings = options.settings()
        async with AsyncExitStack() as stack:
            place = await stack.enter_async_context(opened(options, settings))
            memory = await stack.enter_async_context(administration_of(place, settings))
            work = memory.trigger_build(options.tenant, full=full, hold=hold, force=force, reason=reason, actor=actor())
            request = await administered(memory, options, "trigger_build", None, work)
            here = here or not is_attended(place)
            if not (here or wait):
                if options.json:
                    console.write_json(request)
                else:
                    console.say(f"asked for a build ({request['request_id']}); `myria status` tells how it goes")
                return 0
            ours = await stack.enter_async_context(_BuildProcess(options, settings, place)) if here else None
            build = await _ended(memory.registry, options, request["request_id"], ours=ours)
        if options.json:
            console.write_json(build)
        else:
            _tell(build)
        return Outcome(build["status"]).exit_status


class _BuildProcess:
    """Takes up builds in this process for the length of a block."""

    def __init__(self, options: Options, settings: Settings, place: Place) -> None:
        self._options = options
        self._settings = settings
        self._place = place
        self._task: asyncio.Task[None] | None = None
        self._building = 0
        self.next_end = asyncio.Event()
        """Set once a build that was not over yet when it was asked for has ended here."""

    async def __aenter__(self) -> _BuildProcess:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        from myria.builds.loop import BuildLoop  # noqa: PLC0415 - only where this process builds

        pool = pool_options(self._settings, size=2)
        async with Database(self._place.control, pool) as database:
            loop = BuildLoop(database, self._settings, launch=self._build)
            try:
                while True:
                    end = self.next_end
                    try:
                        await loop.look(self._options.tenant)
                    except UnavailableError as error:
                        logger.warning("the build waits: %s", error.message, extra={"action": "build_waits"})
                        await asyncio.sleep(_OUTAGE_POLL_S)
                        continue
                    await _set_within(end, POLL_S)
                    if self._building:
                        await end.wait()
            finally:
                await loop.close()
                self.next_end.set()

    def refuse_when_over(self) -> None:
        """Pass on why this process takes up no build any more; an outage is no reason.

        Raises:
            Exception: whatever ended it.
        """
        if self._task is not None and self._task.done():
            self._task.result()

    async def _build(self, tenant: str, build_id: str) -> int:
        from myria_builder import build as work_on  # noqa: PLC0415 - only where this process builds

        processes = self._settings.builder.processes
        self._building += 1
        try:
            outcome = await work_on(self._settings, self._place.building, tenant, build_id, processes=processes)
        finally:
            self._building -= 1
            self.next_end.set()
            self.next_end = asyncio.Event()
        return outcome.exit_status


async def _set_within(event: asyncio.Event, longest_s: float) -> None:
    """Wait for an event, no longer than so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            await event.wait()


async def _ended(
    registry: Registry, options: Options, request_id: str, *, ours: _BuildProcess | None
) -> dict[str, Any]:
    """Wait until the build of a request has ended, showing its progress; return it."""
    asked_at = time.monotonic()
    is_told = ours is not None
    pause_s = UNSEEN_POLL_S if ours is not None and options.json else POLL_S
    with console.meter("waiting for a builder", quiet=options.json) as progress:
        while True:
            end = asyncio.Event() if ours is None else ours.next_end
            try:
                request = await registry.request(options.tenant, request_id)
                build_id = request["build_id"]
                build = None if build_id is None else await registry.build(options.tenant, build_id)
            except DatabaseUnavailable:
                await asyncio.sleep(POLL_S)
                continue
            if build is not None and build["finished_at"] is not None:
                return build
            if ours is not None:
                ours.refuse_when_over()
            if build is not None:
                done, total = build["progress"]["tasks_done"], build["progress"]["tasks"]
                progress.advance(done, total or None, "building scopes")
            elif not is_told and time.monotonic() - asked_at > NOBODY_AFTER_S:
                is_told = True
                console.say(
                    "nobody takes the build up; is a `myria up` running on this database? (or use --here)", "yellow"
                )
            await _set_within(end, pause_s)


def _tell(build: dict[str, Any]) -> None:
    if build["status"] == Outcome.NOTHING_TO_DO:
        console.say(
            f"nothing is new since snapshot {build['parent_snapshot_id']}: it stays the active one "
            "(--force makes another one all the same)"
        )
    else:
        console.say(f"build {build['build_id']} {build['status']}: snapshot {build['snapshot_id'] or 'none'}")
    if build["snapshot_id"] is not None:
        counts = build["counts"]
        new, scopes, leaves = (counts.get(name, 0) for name in ("events_new", "scopes_changed", "leaves_planned"))
        console.say(
            f"{count(new, 'new event')}, {count(scopes, 'scope')} changed, {count(leaves, 'leaf topic')} planned", "dim"
        )
    if build["degraded"]:
        console.say(f"{console.one_line(str(Degraded(**build['degraded'])))}; see docs/llm.md", "yellow")
    if build["error"]:
        console.say(f"error[{build['error'].get('code')}]: {console.shown(str(build['error'].get('message')))}", "red")
