"""From which address a request comes, where proxies stand in between."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from myria.errors import ConfigurationError

UNKNOWN = "unknown"
"""Stands for the address of a client that has none (a socket file)."""

_MAX_HOPS = 20

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The trusted proxies: those whose header about the client's address is believed.

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

        This is the first hop, from the peer backwards, that is no trusted proxy. Hops before it are ignored: an
        untrusted party wrote them.

        Args:
            peer: the address that opened the connection; None for a socket file.
            forwarded: the values of the headers X-Forwarded-For, in their order.
        """
        address = None if peer is None else _parsed(peer)
        if address is None:
            return UNKNOWN
        if not self._networks or not self._trusts(address):
            return str(address)
        hops = b",".join(forwarded).decode("latin-1").split(",")
        for hop in reversed(hops[-_MAX_HOPS:]):
            hop_address = _parsed(hop.strip())
            if hop_address is None:
                break
            address = hop_address
            if not self._trusts(address):
                break
        return str(address)

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def _parsed(text: str) -> _Address | None:
    """Return the address in a text that may also hold brackets, a port or a zone; None if it is no address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # An IPv4 client of an IPv6 socket appears as ::ffff:10.0.0.1; return its IPv4 address.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
