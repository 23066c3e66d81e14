"""Cursors: signed, and bound to one query, one snapshot, one view of the tail and one last key.

A page is ranked again over exactly what its first page could see: the snapshot named here, and of the fresh tail
the events that PostgreSQL's snapshot named here could see. So pages neither repeat nor omit. Other texts that a server
hands out and takes back are signed here, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from dataclasses import astuple, dataclass
from typing import Any

import orjson

from myria import errors
from myria.log import canonical
from myria.versions import RANKING_VERSION

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


_PURPOSE = b"myria.cursor.v1"
_MAX_CHARACTERS = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """Where a next page starts.

    `snapshot_id` is empty when no snapshot was active; `visible` is `pg_current_snapshot()` as text; `after` is the
    last key of the page before; `period_end` says when the period ended in which the first page was made, in seconds
    since 1970: with the moment itself, equal answers would differ in their bytes. `newest` is the newest visible moment
    that was not ahead of the clock on the first page, in microseconds since 1970, given only where visible events lie
    ahead of the clock, for the same reason. `by_meaning` tells that the first page compared vectors: later ones do too,
    and those of other answers do not. `looked` tells the same of a second look.
    """

    snapshot_id: str
    visible: str
    after: tuple[int, ...]
    period_end: int
    newest: int | None = None
    by_meaning: bool = False
    looked: bool = False


def period_end(lifetime: float, now: float | None = None) -> int:
    """Return when the running period ends; periods are as long as the lifetime of cursors (`decode`)."""
    period = max(1, round(lifetime))
    return (int(time.time() if now is None else now) // period + 1) * period


def query_digest(tenant: str, tool: str, arguments: dict[str, Any]) -> str:
    """Return the digest that binds a cursor to its query: every argument but the cursor itself."""
    body = {"tenant": tenant, "tool": tool, "arguments": {k: v for k, v in arguments.items() if k != "cursor"}}
    return canonical.digest(body).hex()[:32]


def encode(cursor: Cursor, *, digest: str, secret: bytes) -> str:
    """Return the signed text of a cursor."""
    return signed_text(orjson.dumps([RANKING_VERSION, digest, *astuple(cursor)]), secret, purpose=_PURPOSE)


def decode(text: str, *, digest: str, secret: bytes, lifetime: float, now: float | None = None) -> Cursor:
    """Return the cursor behind `text`.

    Args:
        lifetime: seconds after its first page within which a cursor works for certain; it ends before twice that time.
        now: seconds since 1970; the clock's by default.

    Raises:
        CursorInvalid: forged, damaged, or made for another query.
        CursorExpired: older than its lifetime, or from a release that ranks otherwise: a page of it would repeat or
            omit.
    """
    foreign = errors.CursorInvalid(
        "the cursor was not made for this query; repeat every argument of the first page, or ask again without it",
        field="cursor",
    )
    body = signed_body(text, secret, purpose=_PURPOSE, longest=_MAX_CHARACTERS)
    if body is None:
        raise foreign
    version, made_for, *fields = orjson.loads(body)
    if made_for != digest:
        raise foreign
    if version != RANKING_VERSION:
        raise expired()
    snapshot_id, visible, after, period_end, newest, by_meaning, looked = fields
    if (time.time() if now is None else now) > period_end + lifetime:
        raise expired()
    return Cursor(
        snapshot_id=snapshot_id,
        visible=visible,
        after=tuple(after),
        period_end=period_end,
        newest=newest,
        by_meaning=by_meaning,
        looked=looked,
    )


def expired() -> errors.CursorExpired:
    """Return the error for a cursor past its lifetime, or whose snapshot is gone."""
    return errors.CursorExpired("the cursor has expired; ask again without it", field="cursor")
