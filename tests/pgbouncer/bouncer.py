"""A real PgBouncer, in transaction mode, in front of a test's database.

The program comes from PATH, else from the distribution's packages, unpacked without root into the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import platformdirs

from myria_embedded.account import Account, server_account
from tests.support.patience import PATIENCE_S
from tests.support.processes import Spawned, Spawner, free_port

SERVER_CONNECTIONS = 3
"""So few that transactions of one client soon run on another server connection than the one before."""

_NEEDED = ("libevent", "libcares", "libc-ares")


class Missing(Exception):
    """There is no PgBouncer, and none can be had; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """PgBouncer and where its libraries are, if not where the system looks."""

    path: Path
    libraries: tuple[Path, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """What to add to the environment it runs in."""
        return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, self.libraries))} if self.libraries else {}

    def version(self) -> str:
        """Return what it says about itself.

        Raises:
            Missing: it does not run.
        """
        try:
            done = subprocess.run(
                [self.path, "--version"],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE_S,
            )
        except (OSError, subprocess.SubprocessError) as problem:
            said = getattr(problem, "stderr", "") or problem
            raise Missing(f"{self.path} does not run: {said}") from problem
        return done.stdout.splitlines()[0]


def find_program() -> Program:
    """Return a PgBouncer that runs, unpacking one into the cache folder if need be.

    Raises:
        Missing: not on PATH, and the packages cannot be had.
    """
    found = shutil.which(
        "pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    )
    if found is not None:
        program = Program(path=Path(found))
        program.version()
        return program
    folder = Path(platformdirs.user_cache_dir("myria-tests")) / f"pgbouncer-{platform.machine()}-{_release()}"
    program = _unpacked(folder)
    if not program.path.is_file():
        _unpack(folder)
        program = _unpacked(folder)
    program.version()
    return program


def _release() -> str:
    try:
        return hashlib.sha256(Path("/etc/os-release").read_bytes()).hexdigest()[:8]
    except OSError:
        return "unknown"


def _unpacked(folder: Path) -> Program:
    return Program(
        path=folder / "usr/sbin/pgbouncer",
        libraries=tuple(sorted({path.parent for path in folder.glob("usr/lib/**/*.so*")})),
    )


def _unpack(folder: Path) -> None:
    """Download PgBouncer's package and those of its libraries, and unpack them into a folder."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing("pgbouncer is not on PATH, and this is no system with apt-get and dpkg-deb; install it")
    work = folder.with_name(folder.name + f".{os.getpid()}")
    try:
        (work / "packages").mkdir(parents=True)
        options: list[str] = []
        try:
            _run(["apt-get", *options, "download", "pgbouncer"], work / "packages")
        except Missing:
            options = _own_lists(work / "apt")
            _run(["apt-get", *options, "download", "pgbouncer"], work / "packages")
        needed = _run(["apt-cache", *options, "depends", "--important", "pgbouncer"], work / "packages")
        names = [line.split()[-1] for line in needed.splitlines() if "Depends:" in line]
        libraries = [name for name in names if name.startswith(_NEEDED)]
        _run(["apt-get", *options, "download", *libraries], work / "packages")
        for package in sorted((work / "packages").glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(work / "root")], work)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            (work / "root").rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _own_lists(folder: Path) -> list[str]:
    """Fetch the package lists into a folder of ours: the machine has none, and only root could fetch its own."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    options = [
        *("-o", f"Dir::State::lists={folder / 'lists'}"),
        *("-o", f"Dir::Cache={folder / 'cache'}"),
    ]
    _run(["apt-get", *options, "update"], folder)
    return options


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired as problem:
        raise Missing(f"`{' '.join(command)}` took too long") from problem
    if done.returncode:
        raise Missing(f"`{' '.join(command)}` failed: {done.stderr.strip()[-500:]}")
    return done.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Bouncer:
    """A running PgBouncer."""

    process: Spawned
    port: int

    def in_front_of(self, dsn: str) -> str:
        """Return the connection string that goes through it to a database."""
        parts = urlsplit(dsn)
        return f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{self.port}{parts.path}"


def start(program: Program, folder: Path, spawn: Spawner, dsns: list[str]) -> Bouncer:
    """Run PgBouncer for the roles of some connection strings (over TCP, all to one server)."""
    port = free_port()
    account = server_account(Path("/nonexistent"))
    program = _within_reach(program, folder, account)
    first = urlsplit(dsns[0])
    users = folder / "users.txt"
    users.write_text("".join(f'"{urlsplit(dsn).username}" "{unquote(urlsplit(dsn).password or "")}"\n' for dsn in dsns))
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        f"""
[databases]
* = host={first.hostname} port={first.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
max_client_conn = 200
"""
    )
    for path in (users, configuration):
        path.chmod(0o600)
        if account.lent:
            os.chown(path, account.uid, account.gid)
    process = spawn(
        *(sys.executable, "-c", _AS_ACCOUNT, str(account.uid) if account.lent else "", str(account.gid)),
        *(program.path, configuration),
        env=program.environment,
    )
    process.wait_for("process up", 20)
    return Bouncer(process=process, port=port)


_AS_ACCOUNT = """
import os, sys
uid, gid, program, *arguments = sys.argv[1:]
if uid:
    os.setgroups([]); os.setgid(int(gid)); os.setuid(int(uid))
os.execv(program, [program, *arguments])
"""
"""PgBouncer refuses to run as root."""


def _within_reach(program: Program, folder: Path, account: Account) -> Program:
    """Return the program at a place that the account it runs as may enter."""
    if not program.libraries or account.can_enter(program.path.parent):
        return program
    root = program.path.parents[2]
    shutil.copytree(root, folder / "pgbouncer", symlinks=True)
    for path in (folder / "pgbouncer").rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0))
    return _unpacked(folder / "pgbouncer")
