"""HTTPS by setting: clients that know the authority connect, others are told nothing, and bad files stop the start."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from myria.errors import ConfigurationError
from myria.memory import Memory
from myria.settings import McpSettings, Settings
from myria_server.http.listening import reserve_port
from myria_server.serving import Shutdown, serve_http
from tests.server.wire import call, headers, serving
from tests.support.certificates import self_signed
from tests.support.patience import PATIENCE_S

NAME = "myria_query_event_nodes"


def certificate(folder: Path, *, passphrase: bytes | None = None) -> McpSettings:
    """Write a certificate for 127.0.0.1 that is its own authority, and its key; return the settings that name them."""
    names = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    written, key = self_signed(names, passphrase=passphrase)
    (folder / "tls.crt").write_bytes(written)
    (folder / "tls.key").write_bytes(key)
    return McpSettings(tls_certificate=str(folder / "tls.crt"), tls_key=str(folder / "tls.key"))


async def test_https_is_spoken_and_nothing_else(memory: Memory, tmp_path: Path) -> None:
    """To clients that trust the certificate; its address says so."""
    mcp = certificate(tmp_path)
    async with serving(memory, Settings(mcp=mcp)) as served:
        assert served.server.url == f"https://127.0.0.1:{served.port}/mcp"
        trusting = ssl.create_default_context(cafile=mcp.tls_certificate)
        async with httpx.AsyncClient(verify=trusting, trust_env=False, timeout=PATIENCE_S) as client:
            response = await client.post(served.server.url, json=call(NAME, {}), headers=headers(NAME))
            assert response.json()["result"]["isError"] is False
        usual = ssl.create_default_context()
        async with httpx.AsyncClient(verify=usual, trust_env=False, timeout=PATIENCE_S) as client:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await client.get(served.server.url)
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=PATIENCE_S) as client:
            with pytest.raises(httpx.HTTPError):
                await client.get(f"http://127.0.0.1:{served.port}/livez")


async def shown(port: int) -> bytes:
    """Return the certificate, in DER, that a connection which begins now is shown."""
    anything = ssl.create_default_context()
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anything)
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)  # type: ignore[no-any-return]
    finally:
        writer.close()


def in_der(pem: str) -> bytes:
    """Return a PEM file's certificate as a connection shows it."""
    return ssl.PEM_cert_to_DER_cert(Path(pem).read_text())


async def test_a_renewed_certificate_is_used_without_a_restart(memory: Memory, tmp_path: Path) -> None:
    """New connections see it soon; while one of its two files is old, or no PEM, they see the one before."""
    mcp = certificate(tmp_path)
    (tmp_path / "new").mkdir()
    new = certificate(tmp_path / "new")
    first, second = in_der(mcp.tls_certificate or ""), in_der(new.tls_certificate or "")
    async with serving(memory, Settings(mcp=mcp)) as served:
        assert await shown(served.port) == first
        trusting = ssl.create_default_context(cafile=mcp.tls_certificate)
        async with httpx.AsyncClient(verify=trusting, trust_env=False, timeout=PATIENCE_S) as client:
            url = f"https://127.0.0.1:{served.port}/livez"
            assert (await client.get(url)).status_code == 200
            (tmp_path / "tls.key").write_text("half of a key", encoding="utf-8")
            assert served.server._certificate is not None
            assert served.server._certificate.refresh() is False
            os.replace(tmp_path / "new" / "tls.crt", tmp_path / "tls.crt")
            assert served.server._certificate.refresh() is False
            assert await shown(served.port) == first
            os.replace(tmp_path / "new" / "tls.key", tmp_path / "tls.key")
            async with asyncio.timeout(PATIENCE_S):
                while await shown(served.port) != second:
                    await asyncio.sleep(0.05)
            assert (await client.get(url)).status_code == 200, "the open connection goes on"


async def test_bad_files_stop_the_start(memory: Memory, tmp_path: Path) -> None:
    """Missing, no certificate, or a key with a passphrase: named, before anything is served."""
    good = certificate(tmp_path)
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    text = tmp_path / "text.pem"
    text.write_text("no certificate", encoding="utf-8")
    for bad in (
        McpSettings(tls_certificate=good.tls_certificate, tls_key=str(tmp_path / "nowhere"), port=0),
        McpSettings(tls_certificate=str(text), tls_key=good.tls_key, port=0),
        McpSettings(
            tls_certificate=(locked := certificate(sealed, passphrase=b"word")).tls_certificate,
            tls_key=locked.tls_key,
            port=0,
        ),
    ):
        with pytest.raises(ConfigurationError, match=r"mcp\.tls_certificate"):
            await serve_http(memory, Settings(mcp=bad), reserve_port("127.0.0.1", 0), shutdown=Shutdown())


@pytest.mark.parametrize(("certificate_file", "key_file"), [("/a", None), (None, "/a")])
def test_a_certificate_and_its_key_come_together(certificate_file: str | None, key_file: str | None) -> None:
    """One without the other would silently be plain HTTP."""
    with pytest.raises(ConfigurationError, match="belong together"):
        McpSettings(tls_certificate=certificate_file, tls_key=key_file)
