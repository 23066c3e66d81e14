"""From which address a request comes, where proxies stand in between."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from myria.errors import ConfigurationError

UNKNOWN = "unknown"
"""In place of an address where there is none (a socket file)."""

_MAX_HOPS = 20

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies whose word about their clients is taken.

    Args:
        networks: in CIDR notation, or single addresses.

    Raises:
        ConfigurationError: one of them is neither.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        try:
            self._networks = tuple(ipaddress.ip_network(network.strip(), strict=False) for network in networks)
        except ValueError as error:
            raise ConfigurationError(
                f"auth.proxies must hold networks such as 10.0.0.0/8, or addresses: {error}", field="auth.proxies"
            ) from error

    def client(self, peer: str | None, forwarded: Sequence[bytes]) -> str:
        """Return the address of the client.

        From the peer backwards: the first hop that is no proxy of ours. What stands before it was written by somebody
        who is not trusted.

        Args:
            peer: who opened the connection.
            forwarded: the values of the headers X-Forwarded-For, in their order.
        """
        address = None if peer is None else _parsed(peer)
        if address is None:
            return UNKNOWN
        if not self._networks or not self._trusts(address):
            return str(address)
        hops = b",".join(forwarded).decode("latin-1").split(",")
        for hop in reversed(hops[-_MAX_HOPS:]):
            named = _parsed(hop.strip())
            if named is None:
                break
            address = named
            if not self._trusts(address):
                break
        return str(address)

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def _parsed(text: str) -> _Address | None:
    """Return an address, also where a port or brackets stand with it."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
