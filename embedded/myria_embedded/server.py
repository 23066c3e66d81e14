"""One PostgreSQL on one machine, for one data directory.

A process that needs the database joins the running server of its data directory, or starts one. The process that
started the server stops it; if others still use it then, the last of them does. A `myria up` (`exclusive=True`) owns
the directory: it stops the server when it ends, even if others use it. A server started without Myria is never stopped.

What this does not do: it is no cluster manager. One machine, one server, no replicas, no upgrade to another major
version.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

import asyncpg

from myria.errors import DataDirInUse, EmbeddedPostgresFailed, OperationalError
from myria_embedded import configuration, processes
from myria_embedded import data_dir as folders
from myria_embedded.account import Account, give, server_account
from myria_embedded.creation import create_cluster
from myria_embedded.credentials import SUPERUSER, Credentials
from myria_embedded.endpoint import HOST, Postmaster, free_port, is_free, make_socket_folder
from myria_embedded.find import Binaries, find_binaries
from myria_embedded.locks import FileLock
from myria_embedded.log import ServerLog, tail
from myria_embedded.processes import Child, as_seen_by, end_server, spawn

Progress = Callable[[str], None]
"""Called with the name of each step that takes noticeable time, when it begins."""

POLL_S = 0.02
WATCH_S = 0.2
START_WAIT_S = 180.0
"""How long to wait for another process that is starting or stopping the same server."""
READY_WAIT_S = 300.0
"""How long a started server may take to accept connections; recovery after a crash replays up to 1 GB."""
RETRY_WAIT_S = 30.0
"""Seconds to retry a start while processes of a killed server hold its shared memory, or others its port."""
STOP_STEPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
"""Signals that stop the server (fast shutdown, immediate shutdown, kill), each with the seconds it gets."""
RESTART_DELAYS_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Back-off of the supervisor; it starts over once the server accepted connections."""

_TEMPORARY_FAILURES = ("shared memory block", "lock file", "could not create any TCP/IP sockets", "Unix-domain sockets")
"""Phrases in the log of a failed start that may succeed a moment later."""

_log = logging.getLogger("myria.embedded")


class EmbeddedPostgres:
    """The server of one data directory, found running or started.

        async with EmbeddedPostgres(data_dir) as server:
            connection = await asyncpg.connect(server.dsn)

    Args:
        data_dir: where everything is kept; made when it is not there. Default: `default_data_dir()`.
        exclusive: be the directory's one owner (`myria up`): refuse when another process is, and stop the server on
            leaving whoever else uses it.
        settings: PostgreSQL settings on top of `configuration.DEFAULTS`, for a server started here. Without `fsync`,
            which only throw-away servers do, creating the cluster does not wait for the disk either.
        progress: called for steps that take noticeable time.
        public_port: listen on this port of every address instead of on a free one of loopback; the cluster's
            pg_hba.conf says who may come in.

    Not bound to an event loop. Not for concurrent use, except `supervise()` beside everything else.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        exclusive: bool = False,
        settings: Mapping[str, str] | None = None,
        progress: Progress = lambda _step: None,
        public_port: int | None = None,
    ) -> None:
        self.data_dir = folders.default_data_dir() if data_dir is None else Path(data_dir).expanduser().absolute()
        self.cluster = self.data_dir / "postgres"
        self.credentials = Credentials(self.data_dir / "passwords.json")
        self.exclusive = exclusive
        self._settings = {**configuration.DEFAULTS, **(settings or {})}
        self._progress = progress
        self._public_port = public_port
        self._log_files = ServerLog(self.data_dir, self.cluster)
        self._owner_lock = FileLock(self.data_dir / "up.lock")
        self._user_lock = FileLock(self.data_dir / "users.lock")
        self._binaries: Binaries | None = None
        self._child: Child | None = None
        self._port: int | None = None
        self._socket_folder: str | None = None
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the directory's running server, or create and start it; return when it accepts connections.

        Raises:
            DataDirInUse: exclusive, and another process is the owner (`details["pid"]`).
            DataDirUnusable: the directory cannot be written, or its disk is full.
            EmbeddedPostgresFailed: no programs, a cluster of another major version, or a server that does not start.
        """
        folders.prepare(self.data_dir)
        self._is_stopping = False
        try:
            self._become_owner()
            async with self._start_lock():
                self._user_lock.try_acquire(shared=True)
                await self._join_or_launch()
        except BaseException:
            self._user_lock.release()
            self._owner_lock.release()
            raise

    async def stop(self) -> None:
        """Leave the server; stop it if this process owns the directory or nobody else uses the server."""
        self._is_stopping = True
        try:
            if not self.cluster.is_dir():
                if self._child is not None:
                    end_server(self._child)  # somebody removed the folder under it
            elif self._port is not None:
                async with self._start_lock():
                    if self._must_stop():
                        await self._shut_down()
        finally:
            if self._child is not None and self._child.poll() is None:
                self._child.returncode = 0  # it runs on for others; without a status Popen would warn
            self._child = self._port = self._socket_folder = None
            self._user_lock.release()
            self._owner_lock.release()

    def is_running(self) -> bool:
        """Whether a living server serves this data directory, whoever started it."""
        return self._find_postmaster() is not None

    async def wait_ready(self, timeout_s: float = READY_WAIT_S) -> None:
        """Return when the server accepts connections with our password.

        Raises:
            EmbeddedPostgresFailed: there is no server, or it took longer than `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while not await self._accepts_connections():
            if not self.is_running():
                raise self._failure("PostgreSQL does not run")
            if time.monotonic() > deadline:
                raise self._failure(f"PostgreSQL did not accept connections within {timeout_s:.0f} seconds")
            await asyncio.sleep(POLL_S)

    async def supervise(self) -> None:
        """Bring the server back whenever it dies, on the same port and socket, with back-off; until `stop()`.

        A restart that fails (a full disk, say) is logged and tried again: the cause may pass.
        """
        failures = 0
        while not self._is_stopping:
            if self.is_running():
                await asyncio.sleep(WATCH_S)
                continue
            delay = RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S) - 1)]
            _log.warning("PostgreSQL died", extra={"action": "postgres_died", "restart_in_s": delay})
            await asyncio.sleep(delay)
            try:
                async with self._start_lock():
                    await self._join_or_launch()
            except OperationalError as problem:
                failures += 1
                _log.warning("%s", problem.message, extra={"action": "postgres_restart_failed"})
            else:
                failures = 0
                _log.warning("PostgreSQL is back", extra={"action": "postgres_restarted"})

    # -- addresses ----------------------------------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        """The superuser's connection string to the database `postgres`."""
        return self.superuser_dsn("postgres")

    def superuser_dsn(self, database: str, *, tcp: bool = False) -> str:
        """Return the superuser's connection string to `database`."""
        return self.dsn_as(SUPERUSER, self.credentials.of(SUPERUSER)[0].password, database=database, tcp=tcp)

    def dsn_as(self, role: str, password: str, *, database: str = "myria", tcp: bool = False) -> str:
        """Return a connection string for `role`: through the Unix socket, or over loopback TCP for other tools.

        It stays valid while the supervisor restarts the server.

        Raises:
            EmbeddedPostgresFailed: the server was not started or joined.
        """
        port = self.port
        who = f"postgresql://{quote(role, safe='')}:{quote(password, safe='')}@"
        where = quote(database, safe="")
        if tcp or not self._socket_folder:
            return f"{who}{HOST}:{port}/{where}"
        return f"{who}/{where}?{urlencode({'host': self._socket_folder, 'port': port})}"

    @property
    def port(self) -> int:
        """The loopback TCP port, which also names the Unix socket."""
        if self._port is None:
            raise EmbeddedPostgresFailed("The embedded PostgreSQL has not been started")
        return self._port

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, if it lives."""
        postmaster = self._find_postmaster()
        return postmaster.pid if postmaster else None

    # -- starting -----------------------------------------------------------------------------------------------------

    def _become_owner(self) -> None:
        """Take the lock of the directory's one owner, if this server is exclusive."""
        if not self.exclusive:
            return
        if not self._owner_lock.try_acquire():
            pid = self._owner_lock.read_pid()
            raise DataDirInUse(
                f"Another `myria up` (process {pid or 'unknown'}) uses the data folder {self.data_dir}. "
                "Stop it, or choose another folder with --data-dir",
                data_dir=str(self.data_dir),
                pid=pid,
            )
        self._owner_lock.write_pid()

    def _start_lock(self) -> AbstractAsyncContextManager[None]:
        """Return the lock that one process at a time holds to start or stop the server."""
        # A new FileLock at each call: flock lets every holder of the same descriptor in.
        return FileLock(self.data_dir / "start.lock").held(START_WAIT_S)

    async def _join_or_launch(self) -> None:
        """Join the running server, or start one. The caller holds the start lock."""
        if not self.cluster.is_dir():
            await self._create_cluster()
        elif not (self.data_dir / "passwords.json").is_file():
            raise EmbeddedPostgresFailed(
                f"{self.data_dir / 'passwords.json'} is gone, and with it the passwords of the database beside it: "
                "restore it from a backup"
            )
        if (postmaster := self._find_postmaster()) is not None:
            self._port, self._socket_folder = postmaster.port, postmaster.reachable_socket_folder()
            try:
                await self.wait_ready()
            except EmbeddedPostgresFailed:
                if self.is_running():
                    raise
            else:
                return
        await self._launch()

    async def _create_cluster(self) -> None:
        """Find PostgreSQL's programs, and create the cluster with a superuser whose password is kept."""
        account = server_account(self.cluster)
        self._progress("find PostgreSQL")
        self._binaries = await asyncio.to_thread(find_binaries, account)
        self._progress("create the database")
        with folders.usable(self.data_dir):
            password = self.credentials.of(SUPERUSER)[0].password
        await create_cluster(
            self.data_dir,
            self.cluster,
            binaries=self._binaries,
            account=account,
            password=password,
            durable=self._settings["fsync"] != "off",
        )

    async def _launch(self) -> None:
        """Start the server. A restart keeps port and socket folder, since connection strings with them are in use."""
        account, binaries = await self._prepare_launch()
        is_restart = self._port is not None and bool(self._socket_folder)
        deadline = time.monotonic() + RETRY_WAIT_S
        self._progress("start PostgreSQL")
        while True:
            with folders.usable(self.data_dir):
                await asyncio.to_thread(processes.end_remains, self.cluster)
                (self.cluster / "postmaster.pid").unlink(missing_ok=True)  # its process is dead
                self._log_files.prune()
            self._socket_folder = make_socket_folder(self.cluster, account, self._socket_folder)
            # If its port was taken, a restarted server listens on the socket alone, for connection strings that use it.
            listen = not is_restart or is_free(self.port)
            if not is_restart:
                last_server = self._read_managed()
                self._port = self._public_port or free_port(self._port or (last_server[2] if last_server else None))
            log_text = await self._try_launch(account, binaries, listen=listen)
            if log_text is None:
                return
            if refusal := folders.refusal_in(log_text, self.data_dir):
                raise refusal
            if time.monotonic() > deadline or not any(phrase in log_text for phrase in _TEMPORARY_FAILURES):
                raise self._failure("PostgreSQL does not start", log_text)
            await asyncio.sleep(10 * POLL_S)

    async def _prepare_launch(self) -> tuple[Account, Binaries]:
        """Return the account and the programs for the server; the programs are of the cluster's major version."""
        account = server_account(self.cluster)
        with folders.usable(self.data_dir):
            if self.cluster.stat().st_uid != account.uid:
                give(self.cluster, account)  # restored by root from a backup, say
        try:
            major = int((self.cluster / "PG_VERSION").read_text(encoding="ascii"))
        except (OSError, ValueError) as problem:
            raise EmbeddedPostgresFailed(
                f"{self.cluster} is no PostgreSQL database (its PG_VERSION cannot be read): restore it from a backup"
            ) from problem
        if self._binaries is None or self._binaries.major != major:
            self._binaries = await asyncio.to_thread(find_binaries, account, major=major)
        return account, self._binaries

    async def _try_launch(self, account: Account, binaries: Binaries, *, listen: bool) -> str | None:
        """Start one postmaster; return None once it accepts connections, or its log if it ended before that."""
        settings = {
            **self._settings,
            "listen_addresses": (HOST if self._public_port is None else "*") if listen else "",
            "port": str(self.port),
            "unix_socket_directories": str(self._socket_folder),
            "unix_socket_permissions": "0700",
            "cluster_name": processes.cluster_tag(self.cluster),
        }
        log_sizes = self._log_files.marks()
        with folders.usable(self.data_dir):
            self._log_files.first.unlink(missing_ok=True)
            output = self._log_files.first.open("xb")
        with output, as_seen_by(account, self.cluster) as (path, descriptors):
            self._log_files.first.chmod(0o600)
            # Arguments outrank every configuration file.
            options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            command = [binaries["postgres"], "-D", path, *options]
            child = self._child = spawn(command, account, output, descriptors)
        deadline = time.monotonic() + READY_WAIT_S
        try:
            while child.poll() is None:
                if await self._accepts_connections():
                    self._record_managed()
                    return None
                if time.monotonic() > deadline:
                    raise self._failure(f"PostgreSQL did not accept connections within {READY_WAIT_S:.0f} seconds")
                await asyncio.sleep(POLL_S)
        except BaseException:
            end_server(child)
            processes.end_remains(self.cluster)  # its logger outlives it by a moment
            raise
        return self._log_files.since(log_sizes)

    async def _accepts_connections(self) -> bool:
        """Whether the server accepts a connection with our password now."""
        try:
            connection = await asyncpg.connect(self.dsn, timeout=5)
        except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError) as problem:
            raise EmbeddedPostgresFailed(
                f"The passwords in {self.data_dir / 'passwords.json'} are not those of the database beside it: "
                "restore both from one backup"
            ) from problem
        except asyncpg.PostgresError as problem:
            return not str(problem.sqlstate).startswith("57P")  # starting up or shutting down; else merely busy
        except (OSError, asyncpg.InterfaceError):
            return False
        await connection.close()
        return True

    # -- what is known of the running server --------------------------------------------------------------------------

    def _find_postmaster(self) -> Postmaster | None:
        if self._child is not None:
            self._child.poll()  # reap it: a zombie keeps its process id, and the next postmaster would not start
        return Postmaster.of(self.cluster) if self.cluster.is_dir() else None

    def _record_managed(self) -> None:
        """Write down which server Myria started, and so may stop, and the port to prefer at the next start."""
        if (postmaster := self._find_postmaster()) is not None:
            with folders.usable(self.data_dir):
                (self.data_dir / "managed").write_text(
                    f"{postmaster.pid} {postmaster.started} {postmaster.port}\n", encoding="ascii"
                )

    def _read_managed(self) -> tuple[int, str, int] | None:
        """Return process id, start time and port of the server that Myria started last; see `_record_managed`."""
        try:
            pid, started, port = (self.data_dir / "managed").read_text(encoding="ascii").split()
            return int(pid), started, int(port)
        except (OSError, ValueError):
            return None

    def _failure(self, sentence: str, text: str | None = None) -> EmbeddedPostgresFailed:
        quoted = tail(self._log_files.since({}) if text is None else text)
        return EmbeddedPostgresFailed(f"{sentence} on {self.data_dir}. Its log ends with:\n{quoted}", log=quoted)

    # -- stopping -----------------------------------------------------------------------------------------------------

    def _must_stop(self) -> bool:
        """Whether this process must stop the server: it owns the directory, or nobody else uses the server.

        The caller holds the start lock, so nobody joins meanwhile.
        """
        postmaster = self._find_postmaster()
        if postmaster is not None:
            last_server = self._read_managed()
            if last_server is None or last_server[:2] != (postmaster.pid, postmaster.started):
                return False  # somebody started it without Myria
        return self.exclusive or self._user_lock.try_acquire()

    async def _shut_down(self) -> None:
        """Stop the server by the signals of `STOP_STEPS`, one after the other until it is gone."""
        postmaster = self._find_postmaster()
        for number, patience_s in STOP_STEPS:
            if postmaster is None:
                break
            processes.send(postmaster.pid, number)
            try:
                async with asyncio.timeout(patience_s):
                    while self.is_running():  # noqa: ASYNC110 - it may be another process's child
                        await asyncio.sleep(POLL_S)
            except TimeoutError:
                continue
            except asyncio.CancelledError:
                processes.send(postmaster.pid, signal.SIGQUIT)  # stop at once, without a checkpoint; nothing is lost
                raise
            break
        if self._child is not None:
            end_server(self._child)
        processes.end_remains(self.cluster)
        if self._socket_folder:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
