"""What an authorization server says of itself, and how it is asked: bounded in time and size, over TLS or loopback."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from myria.access.issuers import Issuer, is_safe_url

Json = dict[str, Any]

DOCUMENT_BYTES = 256 * 1024
"""Bytes of any answer of an authorization server."""

_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}  # what is packed could grow without bounds


async def metadata_of(client: httpx.AsyncClient, issuer: Issuer) -> Json:
    """Return the metadata of an issuer (RFC 8414, else OpenID Connect Discovery).

    Raises:
        ValueError: no metadata is found.
    """
    parts = urlsplit(issuer.issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration",
    )
    problem: Exception | None = None
    for place in places:
        try:
            document = await fetch_json(client, place)
        except (httpx.HTTPError, ValueError) as error:
            problem = error
            continue
        if document.get("issuer") != issuer.issuer:
            raise ValueError(f"{place} speaks for another issuer")
        return document
    raise ValueError(f"no metadata at {' or '.join(places)}") from problem


def address_in(document: Mapping[str, Any], name: str, issuer: Issuer) -> str:
    """Return an address that an issuer's metadata names.

    Raises:
        ValueError: it names none that may be used.
    """
    address = document.get(name)
    if not isinstance(address, str) or not is_safe_url(address):
        raise ValueError(f"the metadata of {issuer.issuer} names no {name} that may be asked")
    if address.startswith("http:") and not issuer.issuer.startswith("http:"):
        raise ValueError(f"the metadata of {issuer.issuer} names a {name} without TLS")
    return address


async def fetch_json(client: httpx.AsyncClient, url: str) -> Json:
    """Return the JSON object at an address.

    Raises:
        httpx.HTTPError: it cannot be had.
        ValueError: it is too large, or no JSON object.
    """
    async with client.stream("GET", url, headers=_HEADERS) as response:
        if response.status_code != httpx.codes.OK:
            raise ValueError(f"{url} answered {response.status_code}")
        return await _json_of(response)


async def post_form(
    client: httpx.AsyncClient, url: str, fields: Mapping[str, str], auth: httpx.BasicAuth | None
) -> tuple[int, Json]:
    """Send a form; return the status and the JSON object of the answer.

    Raises:
        httpx.HTTPError: it cannot be sent.
        ValueError: the answer is too large, or no JSON object.
    """
    async with client.stream("POST", url, data=dict(fields), headers=_HEADERS, auth=auth) as response:
        return response.status_code, await _json_of(response)


async def _json_of(response: httpx.Response) -> Json:
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > DOCUMENT_BYTES:
            raise ValueError(f"{response.url} answered more than {DOCUMENT_BYTES} bytes")
    document = orjson.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"{response.url} is no JSON object")
    return document


@lru_cache(maxsize=1)
def trusted_authorities() -> ssl.SSLContext:
    """Return the certificate authorities that are trusted; reading them takes tens of milliseconds, so once."""
    return httpx.create_ssl_context()
