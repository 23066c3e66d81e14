"""Export and import: complete, exact, and never twice."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myria.db.database import Database
from myria.log import transfer
from myria.log.limits import Limits
from myria.notes.folding import event_log
from tests.support import postgres
from tests.support.counts import examples
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Databases

LINE: dict[str, Any] = {
    "timestamp": "2026-03-01T10:00:00Z",
    "channel": "test",
    "participants": ["ana", "ben"],
    "payload": {"text": "hello"},
}


def lines(items: Iterable[Any]) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


async def bring_in(
    dsn: str, text: bytes, *, ignore: Sequence[str] = (), limits: Limits | None = None, tenant: str = TENANT
) -> tuple[transfer.ImportCount, list[transfer.RefusedLine]]:
    refused: list[transfer.RefusedLine] = []
    limits = limits or Limits()
    async with Database(dsn) as database:
        ingest = event_log(database)
        count = await transfer.import_lines(
            ingest,
            tenant,
            transfer.read_lines(io.BytesIO(text).readline, transfer.longest_line(limits)),
            limits,
            ignore=ignore,
            on_refused=refused.append,
        )
        await ingest.close()
    return count, refused


async def take_out(dsn: str, *, tenant: str = TENANT) -> bytes:
    async with Database(dsn) as database:
        bound = await transfer.export_bound(database, tenant)
        pages = [page.text async for page in transfer.export_pages(database, tenant, bound)]
    return b"".join(pages)


async def test_an_export_imported_elsewhere_exports_the_same_bytes(databases: Databases) -> None:
    """Nothing is lost or changed on the way out and in: the second export equals the first, byte for byte."""
    with databases.fresh() as one, databases.fresh() as other:
        await append(one.server_dsn, conversation(1200, internal_share=0.05))
        await append(one.server_dsn, conversation(300, seed=2, participants=("chloé", "ana")))
        text = await take_out(one.server_dsn)
        count, refused = await bring_in(other.server_dsn, text)
        assert (count.imported, count.already_there, refused) == (1500, 0, [])
        assert await take_out(other.server_dsn) == text


async def test_an_export_says_times_by_the_clock_by_which_they_were_given(databases: Databases) -> None:
    """The offset of a timestamp goes out and in with it; the same instant in UTC is the same event again."""
    moments = ["2026-03-12T22:30:00-07:00", "2026-03-13T05:30:00Z", "2026-03-13T11:15:00+05:45"]
    given = lines({**LINE, "timestamp": moment} for moment in moments)
    with databases.fresh() as one, databases.fresh() as other:
        await bring_in(one.server_dsn, given)
        text = await take_out(one.server_dsn)
        assert [json.loads(line)["timestamp"] for line in text.splitlines()] == moments
        await bring_in(other.server_dsn, text)
        assert await take_out(other.server_dsn) == text
        in_utc = lines(json.loads(line) | {"timestamp": "2026-03-13T05:30:00Z"} for line in text.splitlines())
        count, refused = await bring_in(other.server_dsn, in_utc)
        assert (count.already_there, refused) == (3, [])


async def test_an_import_waits_for_a_database_that_is_away(database: postgres.Database) -> None:
    """No line is refused because nobody can tell what is to be taken out of it: it is asked again."""
    away = 3
    pipes: set[asyncio.Task[None]] = set()
    real = urlsplit(database.tcp.server)

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal away
        if away:
            away -= 1
            writer.close()
            return
        to_real = await asyncio.open_connection(real.hostname, real.port)
        pipes.update(asyncio.create_task(pipe(*ends)) for ends in ((reader, to_real[1]), (to_real[0], writer)))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        dsn = urlunsplit(real._replace(netloc=real.netloc.replace(f":{real.port}", f":{port}")))
        count, refused = await bring_in(dsn, lines([LINE]))
        await asyncio.gather(*pipes)
    assert (count.imported, refused, away) == (1, [], 0)


async def test_importing_twice_adds_nothing(database: postgres.Database) -> None:
    """Lines with an event_id, with a key, and with neither are all recognised the second time."""
    text = lines(
        [
            {**LINE, "event_id": "evt_" + "1" * 32},
            {**LINE, "source_event_key": "k1"},
            LINE,
            LINE,
            {**LINE, "payload": {"text": "other"}},
        ]
    )
    first, _ = await bring_in(database.server_dsn, text)
    second, _ = await bring_in(database.server_dsn, text)
    assert (first.imported, first.already_there) == (5, 0)
    assert (second.imported, second.already_there) == (0, 5)


async def test_an_import_that_was_cut_off_is_resumed_by_running_it_again(database: postgres.Database) -> None:
    """What went in before the cut is recognised, the rest follows, in the file's order."""
    text = lines({**LINE, "payload": {"text": f"line {number}"}} for number in range(700))
    await bring_in(database.server_dsn, text[: len(text) // 2])
    count, refused = await bring_in(database.server_dsn, text)
    assert count.imported + count.already_there == 700
    assert not refused
    exported = [json.loads(line)["payload"]["text"] for line in (await take_out(database.server_dsn)).splitlines()]
    assert sorted(set(exported), key=exported.index)[:3] == ["line 0", "line 1", "line 2"]


async def test_every_bad_line_is_reported_and_the_others_go_in(database: postgres.Database) -> None:
    """Line number, code and reason come back for each refused line; no line vanishes silently."""
    text = lines(
        [
            LINE,
            b"{not json",
            {**LINE, "timestamp": "2026-03-01T10:00:00"},
            {**LINE, "participants": []},
            b'{"channel": "a", "channel": "b"}',
            {**LINE, "conversation": "7"},
            b"",
            {**LINE, "payload": {"text": "nul \x00"}},
            b"[1]",
            {**LINE, "payload": {"text": "last"}},
        ]
    )
    count, refused = await bring_in(database.server_dsn, text)
    assert [(one.line, one.code) for one in refused] == [
        (2, "malformed_json"),
        (3, "invalid_timestamp"),
        (4, "invalid_participants"),
        (5, "malformed_json"),
        (6, "unknown_field"),
        (8, "invalid_text"),
        (9, "invalid_argument"),
    ]
    assert (count.lines, count.imported, count.refused, count.blank) == (10, 2, 7, 1)


async def test_a_named_extra_field_is_dropped_instead(database: postgres.Database) -> None:
    """With the field ignored, a line that carries it is imported without it."""
    count, refused = await bring_in(
        database.server_dsn, lines([{**LINE, "conversation": "7", "qa_id": 3}]), ignore=["conversation", "qa_id"]
    )
    assert count.imported == 1
    assert not refused


async def test_an_event_id_with_other_content_is_refused_alone(database: postgres.Database) -> None:
    """The lines around a conflicting event_id go in; the stored event is not changed."""
    await bring_in(database.server_dsn, lines([{**LINE, "event_id": "evt_" + "1" * 32}]))
    before = await take_out(database.server_dsn)
    changed = {**LINE, "event_id": "evt_" + "1" * 32, "payload": {"text": "forged"}}
    count, refused = await bring_in(
        database.server_dsn,
        lines([{**LINE, "event_id": "evt_" + "0" * 32}, changed, {**LINE, "event_id": "evt_" + "2" * 32}]),
    )
    assert [(one.line, one.code) for one in refused] == [(2, "event_id_conflict")]
    assert count.imported == 2
    assert (await take_out(database.server_dsn)).startswith(before)


async def test_a_key_with_other_content_is_reported(database: postgres.Database) -> None:
    """A repeated source_event_key whose payload differs is no silent duplicate."""
    await bring_in(database.server_dsn, lines([{**LINE, "source_event_key": "k"}]))
    count, refused = await bring_in(
        database.server_dsn, lines([{**LINE, "source_event_key": "k", "payload": {"text": "else"}}])
    )
    assert (count.imported, count.refused, refused[0].code) == (0, 1, "event_id_conflict")


async def test_a_line_longer_than_any_event_is_refused_without_being_held(database: postgres.Database) -> None:
    """A line without end is cut while it is read, reported, and the next one goes in."""
    limits = Limits(payload_bytes=1024)
    long = lines([{**LINE, "payload": {"text": "x" * 500_000}}, LINE])
    reader = transfer.read_lines(io.BytesIO(long).readline, transfer.longest_line(limits))
    assert max(len(line) for line in reader) <= transfer.longest_line(limits) + 1
    count, refused = await bring_in(database.server_dsn, long, limits=limits)
    assert [(one.line, one.code) for one in refused] == [(1, "body_too_large")]
    assert count.imported == 1


async def test_a_file_with_a_byte_order_mark_and_dos_line_ends_is_read(database: postgres.Database) -> None:
    """Files from other systems need no conversion."""
    text = b"\xef\xbb\xbf" + json.dumps(LINE).encode() + b"\r\n" + json.dumps({**LINE, "channel": "b"}).encode()
    count, refused = await bring_in(database.server_dsn, text)
    assert (count.imported, refused) == (2, [])


async def test_an_export_holds_every_event_acknowledged_before_it_under_load(database: postgres.Database) -> None:
    """While others append, an export has each earlier event exactly once, in order."""
    await append(database.server_dsn, conversation(200))
    stop = asyncio.Event()

    async def load() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await append(database.server_dsn, [event(number, f"load {number}")])

    loads = [asyncio.create_task(load()) for _ in range(3)]
    connection = await asyncpg.connect(database.dsn)
    await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
    while await connection.fetchval("SELECT count(*) FROM myria.events") < 205:
        await asyncio.sleep(0.01)
    before = {row[0] for row in await connection.fetch("SELECT event_id FROM myria.events")}
    exported = [json.loads(line)["event_id"] for line in (await take_out(database.server_dsn)).splitlines()]
    stop.set()
    await asyncio.gather(*loads)
    order = [row[0] for row in await connection.fetch("SELECT event_id FROM myria.events ORDER BY event_seq")]
    await connection.close()
    assert before <= set(exported)
    assert exported == order[: len(exported)]


numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e300, -1e25, 5e-324, 0.1, 1e16, -0.0, 2.0**63]),
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
payloads = st.dictionaries(
    texts, st.recursive(st.one_of(st.none(), st.booleans(), numbers, texts), st.lists, max_leaves=4), max_size=4
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(payloads, min_size=1, max_size=20))
async def test_any_payload_survives_the_round_trip(databases: Databases, chosen: list[dict[str, Any]]) -> None:
    """Numbers of every size, any text and any nesting come back equal, and a second import recognises them.

    PostgreSQL's numbers are decimal, so 1e16 comes back as an integer: equal as a JSON number.
    """
    with databases.fresh() as one:
        await append(one.server_dsn, [event(at, payload=payload) for at, payload in enumerate(chosen)])
        text = await take_out(one.server_dsn)
        assert [json.loads(line, parse_int=float)["payload"] for line in text.splitlines()] == [
            json.loads(json.dumps(payload), parse_int=float) for payload in chosen
        ]
        for imported in (len(chosen), 0):
            count, refused = await bring_in(one.server_dsn, text, tenant="other")
            assert (count.imported, refused) == (imported, [])
        assert await take_out(one.server_dsn, tenant="other") == text
