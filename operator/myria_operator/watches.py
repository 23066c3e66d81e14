"""kopf's watches, in a thread and an event loop of their own, started again whenever they end.

kopf ends as a whole on answers it does not expect: an ERROR in a stream that is not 410, 410 or 404 as the status of a
request, a stream that ends within a line, a 401. While it ends, it cancels every task of its event loop that began
after it did. Neither may affect the queue, so this thread only hands over names. kopf may never finish ending by itself
(it waits for tasks that it has cancelled), so this module cancels its tasks, and abandons those that do not end.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import kopf

from myria.errors import InternalError
from myria_operator.jobs import COMPONENT_LABELS, SELECTOR
from myria_rebuilds.resource import GROUP, PLURAL, VERSION

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""Seconds between two of kopf's requests, and between two starts of kopf, while either fails.

The list with which a watch begins finds what happened meanwhile.
"""
_PATIENCE_S: Final = 2.0
"""Seconds that each part of kopf gets to end."""


class Watches:
    """Reports the name of each MyriaRebuild that changes, or whose Job changes.

    Args:
        namespace: the only one that is watched.
        tell: called with the name, in the event loop that calls `run`.
    """

    def __init__(self, namespace: str, tell: Callable[[str], None]) -> None:
        self.starts = 0
        """How often the watches started; more than once means that something ended them."""
        self._namespace = namespace
        self._tell = tell
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            InternalError: the watching thread has ended.
        """
        loop = asyncio.get_running_loop()

        def hand_over(name: str) -> None:
            loop.call_soon_threadsafe(self._tell, name)

        thread = threading.Thread(target=self._keep_watching, args=(hand_over,), name="watches", daemon=True)
        thread.start()
        try:
            while thread.is_alive():  # noqa: ASYNC110 - a thread that dies sets no event
                await asyncio.sleep(1.0)
            raise InternalError("the thread of the watches ended")
        finally:
            self._stopping.set()
            with self._lock:
                if self._running is not None:
                    watching_loop, stop = self._running
                    watching_loop.call_soon_threadsafe(stop.set)
            await asyncio.to_thread(thread.join, 5.0)

    def _keep_watching(self, tell: Callable[[str], None]) -> None:
        """Run kopf, and start it again whenever it ends, until `run` is cancelled; the watching thread's program."""
        while not self._stopping.is_set():
            loop = asyncio.new_event_loop()
            error: BaseException | None = None
            try:
                loop.run_until_complete(self._watch(tell))
            except (Exception, asyncio.CancelledError) as ended:  # noqa: BLE001 - it is logged below
                error = ended
            finally:
                loop.close()  # not asyncio.run, which would wait for tasks that do not end
            if not self._stopping.is_set():
                reason = str(error) or type(error).__name__
                logger.warning("the watches ended and begin anew: %s", reason, extra={"action": "watches_ended"})
                self._stopping.wait(_AGAIN_S)

    async def _watch(self, tell: Callable[[str], None]) -> None:
        """Run kopf once, until it ends or is told to stop; raise what ended it."""
        stop = asyncio.Event()
        with self._lock:
            self._running = asyncio.get_running_loop(), stop
            if self._stopping.is_set():
                stop.set()
        stopped = asyncio.create_task(stop.wait(), name="stop")
        roots = {
            *await kopf.spawn_tasks(
                registry=self._make_registry(tell), settings=_settings(), standalone=True, namespaces=[self._namespace]
            )
        }
        try:
            done, _ = await asyncio.wait({stopped, *roots}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            with self._lock:
                self._running = None
            await _end(roots)

    def _make_registry(self, tell: Callable[[str], None]) -> kopf.OperatorRegistry:
        """Return kopf's handlers: each reports the name of the resource that changed, or whose Job changed."""
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def started(**_: Any) -> None:
            self.starts += 1
            if self.starts == 1:
                logger.info("ready", extra={"action": "operator_ready"})

        @kopf.on.login(registry=registry)
        def login(**options: Any) -> kopf.ConnectionInfo | None:
            return kopf.login_with_kubeconfig(**options) or kopf.login_with_service_account(**options)

        @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
        async def rebuild_changed(name: str | None, **_: Any) -> None:
            if name is not None:
                tell(name)

        @kopf.on.event("batch", "v1", "jobs", registry=registry, labels=COMPONENT_LABELS)
        async def job_changed(meta: kopf.Meta, **_: Any) -> None:
            for owner in meta.get("ownerReferences") or ():
                if owner.get("controller") and owner.get("kind") == "MyriaRebuild":
                    tell(owner["name"])

        return registry


async def _end(roots: set[asyncio.Task[None]]) -> None:
    """Cancel kopf's tasks: first the streams, which a failed orchestrator forgets, then the roots, then the rest."""
    for is_chosen in (
        lambda task: task.get_name().startswith("watcher for"),
        lambda task: task in roots,
        lambda _task: True,
    ):
        tasks = {task for task in asyncio.all_tasks() if task is not asyncio.current_task() and is_chosen(task)}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)
    for task in roots:
        if task.done() and not task.cancelled():
            task.exception()  # read here, or asyncio would log it as never retrieved


def _settings() -> kopf.OperatorSettings:
    """Return kopf's settings, and quieten its loggers."""
    for name in ("kopf.objects", "kopf.activities", "kopf._core.engines.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)  # a line per event would bury what the operator does
    # Our one line about its end is enough: its traces would repeat every few seconds while a definition is missing.
    logging.getLogger("kopf._core.reactor").setLevel(logging.CRITICAL)
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None  # it would kill the process, and with it the queue
    settings.networking.error_backoffs = itertools.repeat(_AGAIN_S)  # without end: an outage never ends kopf
    settings.networking.request_timeout = 20.0
    settings.networking.connect_timeout = 5.0
    # A silent watch is renewed: otherwise nobody would notice one that has died.
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 260
    settings.watching.inactivity_timeout = 90.0
    settings.watching.connect_timeout = 5.0
    settings.watching.label_selectors["jobs.batch"] = SELECTOR
    settings.queueing.error_delays = (1, 1, 2, 3, 5, 8)
    return settings
