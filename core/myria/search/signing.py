"""Texts that a server hands out and takes back, such as cursors: signed, so that nobody else makes them."""

from __future__ import annotations

import base64
import hashlib
import hmac

_SIGNATURE_BYTES = 16


def signed_text(body: bytes, secret: bytes, *, purpose: bytes) -> str:
    """Return a body with its signature, as text.

    Args:
        secret: the installation's.
        purpose: what the text is for; a text for something else is none.
    """
    return base64.urlsafe_b64encode(_signature(body, secret, purpose) + body).rstrip(b"=").decode()


def signed_body(text: str, secret: bytes, *, purpose: bytes, longest: int) -> bytes | None:
    """Return the body of a text that `signed_text` made for this purpose; None for any other, and a longer one.

    The body is not looked into before its signature is good.
    """
    if len(text) > longest or not text.isascii():
        return None
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    signature, body = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
    return body if hmac.compare_digest(signature, _signature(body, secret, purpose)) else None


def _signature(body: bytes, secret: bytes, purpose: bytes) -> bytes:
    signing = hmac.new(secret, purpose + b"\n", hashlib.sha256)
    signing.update(body)
    return signing.digest()[:_SIGNATURE_BYTES]
