"""Running the server: ports, addresses, probes, draining."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import asyncpg
import pytest

from myria.errors import ConfigurationError, PortInUse
from myria.memory import Memory
from myria.settings import Settings
from myria_server.http.listening import reserve_port
from myria_server.serving import Shutdown, serve_http
from tests.server.wire import Served, event, serving
from tests.support.locks import somebody_waits
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

ASKED = {"participants": ["user_42"]}


def test_a_busy_port_is_named() -> None:
    """The port is reserved before anything else, so nothing has to be stopped again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use"):
            reserve_port("127.0.0.1", port)


def test_two_reservations_of_one_port_collide() -> None:
    """Even before either has started to serve."""
    first = reserve_port("127.0.0.1", 0)
    with first, pytest.raises(PortInUse):
        reserve_port("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_an_address_others_can_reach_must_be_asked_for(host: str) -> None:
    """There is no authentication yet: anything but loopback needs insecure=True."""
    with pytest.raises(ConfigurationError, match="no authentication"):
        reserve_port(host or "0.0.0.0", 0)
    reserve_port(host or "0.0.0.0", 0, insecure=True).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_is_fine(host: str) -> None:
    """By any of its names."""
    reserve_port(host, 0).close()


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here_is_a_configuration_error(host: str) -> None:
    """Unknown names and foreign addresses are told apart from busy ports."""
    with pytest.raises(ConfigurationError):
        reserve_port(host, 0, insecure=True)


async def test_serving_ends_when_told(memory: Memory) -> None:
    """serve_http answers once ready is set, and returns after it was asked to."""
    sock = reserve_port("127.0.0.1", 0)
    port = sock.getsockname()[1]
    shutdown, ready = Shutdown(), asyncio.Event()
    task = asyncio.create_task(serve_http(memory, Settings(), sock, shutdown=shutdown, linger_s=0, ready=ready))
    await ready.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert b'{"status":"ok"}' in await reader.read()
    writer.close()
    shutdown.request()
    await asyncio.wait_for(task, 120)
    reserve_port("127.0.0.1", port).close()


async def refuses_connections(port: int) -> None:
    """Return once nobody listens to a port any more."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await asyncio.sleep(0.01)


async def test_open_requests_are_finished_before_stopping(database: Database) -> None:
    """A request under way when the server is told to stop still gets its answer."""
    blocker = await asyncpg.connect(database.superuser_dsn)
    async with Memory(database.server_dsn, Settings()) as memory, serving(memory) as served:
        await served.call("append_event", event("before"))
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("LOCK TABLE myria.events IN ACCESS EXCLUSIVE MODE")
        waiting = asyncio.create_task(served.call("append_event", event("during")))
        await somebody_waits(blocker)
        served.server.stop()
        await refuses_connections(served.port)
        await transaction.rollback()
        assert not (await waiting).is_error
    await blocker.close()


async def test_a_stuck_request_does_not_hold_the_server_for_ever(database: Database) -> None:
    """Draining has an end."""
    settings = Settings.load(overrides={"mcp.drain_s": 1}, environ={})
    blocker = await asyncpg.connect(database.superuser_dsn)
    async with Memory(database.server_dsn, settings) as memory:
        async with serving(memory, settings) as served:
            await served.call("append_event", event("before"))
            await blocker.execute("BEGIN; LOCK TABLE myria.events IN ACCESS EXCLUSIVE MODE")
            waiting = asyncio.create_task(served.call("append_event", event("during")))
            await somebody_waits(blocker)
            served.server.stop()
        # The server has ended, though nobody has let go of the lock.
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await blocker.close()


async def test_health_needs_no_database_and_readiness_does() -> None:
    """With the database away /healthz is well and /readyz says why not; calls are refused, retryable."""
    settings = Settings.load(overrides={"postgres.connect_timeout_s": 0.5}, environ={})
    async with (
        Memory("postgresql://nobody@127.0.0.1:1/nothing", settings) as memory,
        serving(memory, settings) as served,
    ):
        assert (await served.client.get("/healthz")).json() == {"status": "ok"}
        ready = await served.client.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["error"]["code"] == "database_unavailable"
        answer = await served.call("query_event_nodes", ASKED)
        assert answer.code == "database_unavailable"
        assert "myria_database_up 0.0" in (await served.client.get("/metrics")).text


async def test_readiness_checks_the_schema(databases: object, served: Served) -> None:
    """A migrated database is ready."""
    assert (await served.client.get("/readyz")).json() == {"status": "ready"}


async def test_a_draining_server_is_not_ready(served: Served) -> None:
    """Load balancers stop sending before connections close."""
    served.server.app.readiness.draining = True
    assert (await served.client.get("/readyz")).status_code == 503
    assert (await served.client.get("/healthz")).status_code == 200


async def test_no_part_of_an_answer_waits_for_the_one_before(served: Served) -> None:
    """Nagle's algorithm is off on every connection: else a client's late acknowledgement costs 40 ms a request."""
    await served.client.get("/livez")
    connections = served.server._server.server_state.connections
    assert connections
    for connection in connections:
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
