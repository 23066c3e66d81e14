"""Runs one container, as a program of its own: `container.py SPECIFICATION.json`, within the pod's network.

The command sees a root file system of its own with the system's programs, this Python environment and the project
(the "image"; read-only), the volumes, /dev and its own /proc, and nothing else. It is process 1, has the user, groups
and capabilities (none) that the specification says, and cannot gain any. Signals are handed on to it; the exit status
is its own, 128 and the number when a signal ended it. When this program is killed, so is everything in there.

Standard library alone, and no module of the project: it starts in an instant. One that was forked enters a
container by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x04000000, 0x08000000, 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "opt")
CONFIGURATION = ("nsswitch.conf", "host.conf", "ld.so.cache", "localtime", "protocols", "services", "mime.types")
DEVICES = ("null", "zero", "full", "random", "urandom")
PASSWD = "root:x:0:0:root:/root:/bin/sh\nmyria:x:10001:10001:Myria:/tmp:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nmyria:x:10001:\n"
"""As in the image."""
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run the container's command."""
    specification = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    enter(specification)
    command = specification["command"]
    try:
        os.execvpe(command[0], command, specification["environment"])
    except OSError as error:
        print(f"exec {command[0]}: {error}", file=sys.stderr, flush=True)
        os._exit(127)


def enter_as_fork(file: Path, network: str) -> None:
    """Turn into process 1 of a container, within a network, as who was started otherwise."""
    with open(network, "rb") as namespace:
        checked(LIBC.setns(namespace.fileno(), CLONE_NEWNET))
    enter(json.loads(file.read_text(encoding="utf-8")))
    checked(LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))  # as exec makes it: its own /proc is its own


def enter(specification: dict[str, Any]) -> None:
    """Return in a new process, the first of the container; this one hands signals on to it, and ends as it does."""
    root = Path(specification["root"])
    checked(LIBC.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC))
    build(root, specification)
    child = os.fork()
    if child == 0:
        try:
            become(root, specification)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the process must not go on as a second parent
            print(f"cannot start the container: {error!r}", file=sys.stderr, flush=True)
            os._exit(127)
        return

    def hand_on(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, hand_on)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def build(root: Path, specification: dict[str, Any]) -> None:
    """Put the root file system together."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID, "mode=0755")
    for name in SYSTEM:
        source = Path("/", name)
        if source.is_symlink():
            (root / name).symlink_to(source.readlink())
        elif source.is_dir():
            bind(source, root / name, read_only=True)
    etc = root / "etc"
    etc.mkdir()
    for name in CONFIGURATION:
        if Path("/etc", name).is_file():
            shutil.copyfile(Path("/etc", name), etc / name)
    bind(Path("/etc/ssl"), etc / "ssl", read_only=True)
    (etc / "passwd").write_text(PASSWD, encoding="ascii")
    (etc / "group").write_text(GROUP, encoding="ascii")
    (root / "proc").mkdir()
    (root / "dev").mkdir()
    for name in DEVICES:
        bind(Path("/dev", name), root / "dev" / name)
    (root / "dev/shm").mkdir()
    mount("tmpfs", root / "dev/shm", "tmpfs", MS_NOSUID, "mode=1777,size=64m")
    for folder in ("tmp", "run", "var/run"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for source, target, read_only in specification["mounts"]:
        bind(Path(source), root / target.lstrip("/"), read_only=read_only)


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Show a file or folder at another place."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def become(root: Path, specification: dict[str, Any]) -> None:
    """Turn into the container's process 1."""
    mount("proc", root / "proc", "proc", MS_NOSUID)
    if specification["read_only"]:
        mount(None, root, None, MS_REMOUNT | MS_BIND | MS_RDONLY)
    name = specification["hostname"].encode()
    checked(LIBC.sethostname(name, len(name)))
    os.chroot(root)
    os.chdir(specification["folder"])
    for capability in range(64):
        if LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # the kernel knows no further ones
    os.setgroups(specification["groups"])
    os.setgid(specification["group"])
    os.setuid(specification["user"])
    checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def mount(source: str | Path | None, target: str | Path, kind: str | None, flags: int, data: str = "") -> None:
    """Call mount(2)."""
    arguments = (
        None if source is None else os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    if LIBC.mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def checked(result: int) -> None:
    """Raise what the C library says went wrong."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
