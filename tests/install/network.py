"""The network of a node: a bridge, an address for every pod, and what kube-proxy and the cluster's DNS do.

Each node has network namespaces of its own (the kernel's, of unprivileged sockets and real interfaces), so nodes of
several sessions do not see each other and no port or address of a pod is changed. Only this process reaches in:
`connect()` opens a socket within the node. Namespaces are held by open files alone, and go when this process does.

A Service's cluster IP is an address of the bridge; whoever connects to it is forwarded to a ready endpoint, by this
process. Names of Services stand in a hosts file that all pods have mounted, kept current; a headless Service is its
ready pods. Nothing else of DNS is there. The API server is at the address that the cluster says, in front of the real
one; `expose()` puts other servers of this machine on the node's own address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.kubernetes.api import Api, Json
from tests.kubernetes.certificates import IN_CLUSTER
from tests.support.postgres import LoopThread

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_TURNS_TO_BEGIN = 5
"""Turns of the loop without a task, after which no connection that was accepted begins one."""
GATEWAY = "10.44.0.1"
"""The node's own address, as pods see it."""
_BRIDGE = "link add br0 address 02:00:00:00:00:01 type bridge"
"""With an address of its own: else it takes one of its ports', which come and go, and pods lose it for seconds."""

Address = tuple[str, int]


class NotAllowed(Exception):
    """This machine or user cannot make network namespaces; the message says what is missing."""


def check_allowed() -> None:
    """Return when pods can be isolated here.

    Raises:
        NotAllowed: they cannot.
    """
    if os.geteuid() != 0:
        raise NotAllowed("pods with networks and mounts of their own need root")
    if missing := [program for program in ("ip",) if shutil.which(program) is None]:
        raise NotAllowed(f"{', '.join(missing)} is missing (Debian: iproute2)")
    try:
        node = _new_namespace()
    except OSError as error:
        raise NotAllowed(f"no network namespaces: {error}") from None
    os.close(node)


class Network:
    """One node's network, from its making until `close()`."""

    def __init__(self, api: Api, namespace: str, hosts: Path, api_server: Address) -> None:
        self.hosts = hosts
        """The file that pods have as /etc/hosts."""
        self._api = api
        self._kubernetes = namespace
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._node = _new_namespace()
        self._pods: list[int] = []
        self._numbers = itertools.count(2)
        self._turns = itertools.count()
        self._served: set[Address] = set()
        self._ready: dict[Address, list[Address]] = {}
        self._loop = LoopThread()
        self._forwarding: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._known: dict[str, dict[str, Json]] = {"Service": {}, "Endpoints": {}}
        self._ip(self._node, "link set lo up", _BRIDGE, f"addr add {GATEWAY}/16 dev br0")
        self._ip(self._node, "link set br0 up", f"addr add {IN_CLUSTER}/32 dev br0")
        self._listen((IN_CLUSTER, 443), self._node, lambda: api_server, self._outside)
        self._look()  # pods have the file of names mounted from the beginning
        for kind in self._known:
            threading.Thread(target=self._follow, args=(kind,), name=f"{kind} of {namespace}", daemon=True).start()

    # What the node and tests use.

    def pod(self) -> tuple[int, str]:
        """Return a new pod's namespace, as an open file that stays this network's, and its address."""
        number = next(self._numbers)
        address = f"10.44.{number // 250}.{number % 250 + 2}"
        pod = _new_namespace()
        self._pods.append(pod)
        self._ip(
            pod,
            "link set lo up",
            f"link add eth0 type veth peer name v{number} netns /proc/{os.getpid()}/fd/{self._node}",
            f"addr add {address}/16 dev eth0",
            "link set eth0 up",
            f"route add default via {GATEWAY}",
        )
        self._ip(self._node, f"link set v{number} master br0 up")
        return pod, address

    def forget(self, pod: int) -> None:
        """Give up a pod's namespace; it goes when its last process does."""
        self._pods.remove(pod)
        os.close(pod)

    @contextmanager
    def inside(self, namespace: int | None = None) -> Iterator[None]:
        """Have this thread's new sockets and child processes within a pod, or within the node."""
        with _within(self._node if namespace is None else namespace):
            yield

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to a pod or Service, as from the node."""
        with self.inside():
            one = socket.socket()
        one.settimeout(timeout_s)
        try:
            one.connect((host, port))
        except BaseException:
            one.close()
            raise
        return one

    def expose(self, port: int, target: Address) -> Address:
        """Let pods reach a server of this machine; return where."""
        self._listen((GATEWAY, port), self._node, lambda: target, self._outside)
        return GATEWAY, port

    def reach(self, target: Address) -> Address:
        """Let this machine reach something within the node; return where."""
        return self._listen(("127.0.0.1", 0), self._outside, lambda: target, self._node)

    def close(self) -> None:
        """End all forwarding; namespaces without processes go."""
        with self._looking:
            self._stopping.set()
        self._loop.run(_end_connections(self._servers))
        self._loop.close()
        for one in (*self._pods, self._node, self._outside):
            os.close(one)

    # How.

    def _follow(self, kind: str) -> None:
        for event, objects in self._api.follow(kind, self._kubernetes, self._stopping):
            with self._looking:
                if self._stopping.is_set():
                    return
                known = self._known[kind]
                if event == "LISTED":
                    known.clear()
                for found in objects:
                    known[found["metadata"]["name"]] = found
                    if event == "DELETED":
                        del known[found["metadata"]["name"]]
                self._look()

    def _look(self) -> None:
        """Bring addresses, forwarding and names in line with Services and Endpoints."""
        services, endpoints = self._known["Service"].values(), self._known["Endpoints"]
        lines = ["127.0.0.1 localhost", f"{IN_CLUSTER} kubernetes.default.svc"]
        ready = {}
        for service in services:
            found = endpoints.get(service["metadata"]["name"], {})
            address = service["spec"].get("clusterIP")
            named = [address] if address != "None" else [one for one, _ in _targets(found, None)]
            names = _names(service["metadata"]["name"], self._kubernetes)
            lines += [f"{one} {names}" for one in dict.fromkeys(named)]
            for port in service["spec"]["ports"] if address != "None" else ():
                ready[address, port["port"]] = _targets(found, port.get("name", ""))
        self._ready = ready
        for one in ready.keys() - self._served:
            if one[0] not in {address for address, _ in self._served}:
                self._ip(self._node, f"addr add {one[0]}/32 dev br0")
            self._served.add(one)
            self._listen(one, self._node, partial(self._endpoint, one), self._node)
        text = "\n".join(lines) + "\n"
        if not self.hosts.exists() or self.hosts.read_text(encoding="ascii") != text:
            self.hosts.write_text(text, encoding="ascii")  # in place: pods have this very file mounted

    def _endpoint(self, service: Address) -> Address | None:
        found = self._ready.get(service)
        return found[next(self._turns) % len(found)] if found else None

    def _ip(self, namespace: int, *lines: str) -> None:
        with _within(namespace):
            done = subprocess.run(
                ["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            raise NotAllowed(f"ip {lines}: {done.stderr.strip()}")

    def _listen(self, where: Address, inside: int, choose: Callable[[], Address | None], target: int) -> Address:
        with _within(inside):
            listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(128)
        listening.setblocking(False)
        found: Address = listening.getsockname()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if task := asyncio.current_task():  # nothing else holds it once its client has said all
                self._forwarding.add(task)
                task.add_done_callback(self._forwarding.discard)
            with contextlib.suppress(asyncio.CancelledError):  # asyncio's streams complain of it, at the very end
                await _forward(reader, writer, choose, target)

        async def serve() -> None:
            self._servers.append(await asyncio.start_server(forward, sock=listening))

        self._loop.run(serve())
        return found


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, choose: Callable[[], Address | None], namespace: int
) -> None:
    """Carry a connection on to whoever is chosen; refuse it when there is nobody, as kube-proxy does."""
    target = choose()
    if target is None:
        writer.transport.abort()
        return
    with _within(namespace):
        outgoing = socket.socket()
    outgoing.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(outgoing, target)
        far_reader, far_writer = await asyncio.open_connection(sock=outgoing)
    except OSError:
        outgoing.close()
        writer.transport.abort()
        return
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_carry(reader, far_writer))
            group.create_task(_carry(far_reader, writer))
    except* OSError:
        pass
    finally:
        for one in (writer, far_writer):
            one.transport.abort()


async def _end_connections(servers: Iterable[asyncio.Server]) -> None:
    """End all tasks of this loop, also those of connections that were accepted and have none yet."""
    for server in servers:
        server.close()
    turns_without = 0
    while turns_without < _TURNS_TO_BEGIN:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)
        turns_without = 0 if others else turns_without + 1


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _targets(endpoints: Json, port_name: str | None) -> list[Address]:
    """Return the ready addresses of a Service, at the port of a name; None is the first port."""
    return [
        (address["ip"], port["port"])
        for subset in endpoints.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
        if port_name is None or port.get("name", "") == port_name
    ]


def _names(service: str, namespace: str) -> str:
    return f"{service} {service}.{namespace} {service}.{namespace}.svc {service}.{namespace}.svc.cluster.local"


def _new_namespace() -> int:
    """Return an open file of a new network namespace; a thread makes it, and ends."""
    made: list[int | OSError] = []

    def make() -> None:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            made.append(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
        else:
            made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    (found,) = made
    if isinstance(found, OSError):
        raise found
    return found


@contextmanager
def _within(namespace: int) -> Iterator[None]:
    """Move this thread into a network namespace for the block, which must not await."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(namespace)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(home)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
