"""Reserving the TCP port that is served on: apart from the server, so that a process that serves nothing can do it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from myria.errors import ConfigurationError, PortInUse


def reserve_port(host: str, port: int, *, insecure: bool = False, guarded: bool = False) -> socket.socket:
    """Return a bound socket; call this before starting anything that would have to be stopped again.

    Args:
        port: 0 for any free one (ask the socket which).
        insecure: allow an address that others can reach, without authentication.
        guarded: callers prove who they are (auth.mode), so any address will do.

    Raises:
        PortInUse: somebody listens there.
        ConfigurationError: not an address of this machine, or not loopback without `insecure` or `guarded`.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigurationError(f"{host} is not a host name or address: {error.strerror}", host=host) from error
    # `localhost` may resolve to both families: clients that print a dotted address would miss [::1].
    family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    if not (insecure or guarded) and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ConfigurationError(
            f"{host} can be reached by others and there is no authentication; ask for keys (`myria up --auth`, or "
            "auth.mode: keys), listen on 127.0.0.1, or pass --insecure if something in front guards the port",
            host=host,
        )
    # With the protocol named, asyncio switches Nagle's algorithm off: else each answer's second part waits 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        # Two processes may bind with SO_REUSEADDR while neither listens: only listening claims the port.
        sock.listen(2048)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use; choose another with --port", host=host, port=port
            ) from error
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigurationError(f"cannot listen on {host}:{port}: {reason}", host=host, port=port) from error
    sock.setblocking(False)
    return sock
