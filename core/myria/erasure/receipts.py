"""Receipts: made at the end of an erasure, chained per tenant, and proved later in a database or a restored dump."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Mapping

from myria import errors
from myria.builds.verify.log import chain_problems
from myria.db.database import Connection, Database, TransactionBounds
from myria.db.queries import sql
from myria.erasure.model import Receipt, ReceiptProof
from myria.erasure.pace import Pace
from myria.erasure.words import PhraseFinder, strings
from myria.index import decode
from myria.log.canonical import canonical_json

READING = TransactionBounds(statement=86_400.0, idle=3_600.0, lock=20.0, total=86_400.0)
"""Of transactions that read every text of a tenant."""

_STREAM_ROWS = 100
_TEXTS_AT_ONCE = 25
_CHARACTERS_AT_ONCE = 10_000
_SHOWN = 20
_PLACES = (
    ("events", "erasure.words_of_events"),
    ("renderings", "erasure.words_of_renderings"),
    ("models", "erasure.words_of_models"),
    ("notes", "erasure.words_of_notes"),
)

_Text = tuple[str, str, str]
"""The place that holds a text, the text's key there, and the text."""


def chained(secret: bytes, previous: bytes | None, content: bytes) -> bytes:
    """Return the MAC of a receipt: an HMAC over the MAC before it and its own canonical JSON."""
    return hmac.digest(secret, (previous or bytes(32)) + content, "sha256")


async def remaining(
    connection: Connection,
    tenant: str,
    key: bytes,
    wanted: Mapping[bytes, int | None],
    *,
    examined: Counter[str],
    pace: Pace | None = None,
) -> dict[bytes, str]:
    """Return the digests of erased phrases that are still in the database, each with one place that holds the phrase.

    Args:
        wanted: the sieves of the digests, by digest; see `PhraseFinder`.
        examined: is raised by the number of texts read, by place.
        pace: rests after each page of texts; None to read without rests.
    """
    place_by_digest: dict[bytes, str] = {}
    finder = PhraseFinder(key, wanted)
    async for texts in _pages_of_texts(connection, tenant):
        examined.update(place for place, _, _ in texts)
        for (place, key_in_place, _), found in zip(texts, finder.find([text for _, _, text in texts]), strict=True):
            for digest in found:
                place_by_digest.setdefault(digest, f"{place} {key_in_place}")
        if pace is not None:
            await pace.rest()
    return place_by_digest


async def verify_receipt(database: Database, tenant: str, receipt: Receipt) -> ReceiptProof:
    """Check that a receipt was issued by this database (or the one it is a copy of), and that nothing it names is left.

    Without the receipt's key, words cannot be searched for; events and search blocks are checked in any case.

    Raises:
        InvalidArgument: the receipt's key is malformed.
    """
    async with database.read(tenant, READING) as connection:
        return await _prove(connection, tenant, receipt)


async def _prove(connection: Connection, tenant: str, receipt: Receipt) -> ReceiptProof:
    problems: list[str] = []
    examined: Counter[str] = Counter()
    content = receipt.content
    erasure_id = str(content.get("erasure_id"))
    if content.get("tenant") != tenant:
        return ReceiptProof(problems=(f"the receipt is of another tenant than {tenant}",))
    row = await connection.fetchrow(sql("erasure.get"), tenant, erasure_id)
    if row is None or row["receipt"] is None:
        return ReceiptProof(problems=(f"this database knows no receipt of erasure {erasure_id}",))
    if row["receipt"].encode() != canonical_json(content) or row["mac"].hex() != receipt.mac:
        problems.append("the receipt is not the one that was issued for this erasure")
    examined["receipts"], broken_chain = await chain_problems(connection, tenant)
    problems += broken_chain
    words_left = await connection.fetch(sql("erasure.words_left"), tenant, erasure_id)
    problems += [f"event {left['event_id']} is in the log with its words" for left in words_left]
    erased_seqs = {seq["event_seq"] for seq in await connection.fetch(sql("erasure.numbers"), tenant, erasure_id)}
    async for block in connection.cursor(sql("erasure.words_of_blocks"), tenant, prefetch=20):
        examined["search_blocks"] += 1
        if not erased_seqs.isdisjoint(decode(block["block"]).seq.tolist()):
            problems.append(f"search block {block['key']} has words of an erased event")
    if receipt.key is not None:
        rows = await connection.fetch(sql("erasure.words"), tenant, erasure_id)
        sieve_by_digest = {found["digest"]: found["sieve"] for found in rows}
        place_by_digest = await remaining(connection, tenant, _key(receipt.key), sieve_by_digest, examined=examined)
        places = sorted(set(place_by_digest.values()))
        problems += [f"erased words are in {place}" for place in places[:_SHOWN]]
        if len(places) > _SHOWN:
            problems.append(f"and in {len(places) - _SHOWN} more places")
    return ReceiptProof(problems=tuple(problems), examined=dict(examined))


def _key(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.InvalidArgument("the receipt's key is none", field="key") from error
    if len(key) != 32:
        raise errors.InvalidArgument("the receipt's key is none", field="key")
    return key


async def _pages_of_texts(connection: Connection, tenant: str) -> AsyncIterator[list[_Text]]:
    """Yield every text that is stored for a tenant, in small pages."""
    page: list[_Text] = []
    size = 0
    async for text in _each_text(connection, tenant):
        page.append(text)
        size += len(text[2])
        if len(page) == _TEXTS_AT_ONCE or size > _CHARACTERS_AT_ONCE:
            yield page
            page, size = [], 0
    yield page


async def _each_text(connection: Connection, tenant: str) -> AsyncIterator[_Text]:
    for place, statement in _PLACES:
        async for row in connection.cursor(sql(statement), tenant, prefetch=_STREAM_ROWS):
            yield place, str(row["key"]), row["text"] or ""
    async for row in connection.cursor(sql("erasure.remarks"), tenant, prefetch=_STREAM_ROWS):
        yield row["place"], row["key"], row["text"] or ""
    async for row in connection.cursor(sql("erasure.words_of_blocks"), tenant, prefetch=20):
        view = decode(row["block"])
        names = (*view.speakers, *view.channels, *view.types, *view.contexts)
        yield "search_blocks", row["key"], " \n".join(strings(list(names)))
