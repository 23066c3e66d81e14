"""The server's certificate: read at the start, and again whenever its files change, without a restart.

A renewed certificate holds for connections that begin after it was read; those that are open go on under the old one.
While the files cannot be used (one of the two is written, the other not yet), the server goes on with what it has, and
looks again.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from myria.errors import ConfigurationError

logger = logging.getLogger(__name__)

_FileState = tuple[tuple[int, int, int], ...]


class Certificate:
    """The files of a certificate and its key, and the context of TLS that they make.

    Args:
        certificate: path of a PEM file, with what stands between it and its authority.
        key: path of the PEM file of its private key, without a passphrase.

    Raises:
        ConfigurationError: one cannot be read, is no PEM, or they do not belong together.
    """

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._failure_logged = False
        try:
            self._loaded_state = self._file_state()
            self._loaded_context = self._read()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"TLS cannot be set up from mcp.tls_certificate and mcp.tls_key: {error}", field="mcp.tls_certificate"
            ) from error
        self.context = self._loaded_context
        # A listening socket keeps its context. Each handshake takes the newest one's certificate in its place, so that
        # no handshake meets a certificate without its key.
        self.context.sni_callback = self._use_newest

    def refresh(self) -> bool:
        """Read the files again if they have changed; return whether new ones hold from now on."""
        try:
            state = self._file_state()
            if state == self._loaded_state:
                return False
            self._loaded_context = self._read()
        except (OSError, ValueError) as error:
            if not self._failure_logged:  # the next look is a second away
                logger.warning(
                    "the renewed certificate cannot be used, the one before stays: %s",
                    error,
                    extra={"action": "certificate_failed", "file": str(self._certificate)},
                )
            self._failure_logged = True
            return False
        self._loaded_state, self._failure_logged = state, False
        logger.info(
            "the certificate was renewed", extra={"action": "certificate_renewed", "file": str(self._certificate)}
        )
        return True

    def _use_newest(self, handshake: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _of: ssl.SSLContext) -> None:
        if self._loaded_context is not self.context:
            handshake.context = self._loaded_context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key, password=_no_passphrase)
        return context

    def _file_state(self) -> _FileState:
        stats = [path.stat() for path in (self._certificate, self._key)]
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def _no_passphrase() -> str:
    raise ValueError("the private key needs a passphrase; take it out")
