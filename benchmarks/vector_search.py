"""Whether pgvector would find the vectors of visible scopes faster than the process that answers, and as well.

Made-up vectors (384 signed bytes, in clusters, as texts of a few subjects are) lie in one scope with half of them and
in fifty others with a hundredth each. A question sees the big scope or one of the others. Compared are the process as
it is (`myria.index.vectors`: all cosines, exact), and pgvector in the embedded PostgreSQL: all cosines, the 50 nearest
exactly, and the 50 nearest by an HNSW index over all scopes, filtered by scope, with and without iterative scans.

    python -m benchmarks.vector_search [--sizes 1e4,1e5,1e6] [--hnsw-up-to 1e5] [--work-dir DIR]

Times are processor time, of the process or of PostgreSQL's backend for it, a question.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg
import numpy as np
import numpy.typing as npt
from platformdirs import user_cache_path

from benchmarks.cluster import Cluster
from benchmarks.statements import statement
from myria.index.vectors import VectorRows, quantised

DIMENSIONS: Final = 384
NEAREST: Final = 50
QUESTIONS: Final = 20
OTHER_SCOPES: Final = 50
BIG: Final = 1
_CLUSTERS: Final = 300
_AT_ONCE: Final = 20_000
_DATABASE: Final = "vector_search"

Floats = npt.NDArray[np.float32]
Asking = Callable[[bytes], Awaitable[Sequence[int]]]
Exact = dict[int, dict[bytes, set[int]]]
"""The nearest to each question, by scope."""


def main() -> None:
    """Print a table for each size."""
    parser = argparse.ArgumentParser(description="The nearest vectors, in process and by pgvector.")
    parser.add_argument("--sizes", default="1e4,1e5", help="numbers of vectors")
    parser.add_argument("--hnsw-up-to", type=float, default=1e5, help="the largest size that gets an HNSW index")
    parser.add_argument("--work-dir", type=Path, default=user_cache_path("myria-bench") / "vector-search")
    options = parser.parse_args()
    sizes = [int(float(size)) for size in options.sizes.split(",")]
    asyncio.run(_measured(sizes, int(options.hnsw_up_to), options.work_dir))


async def _measured(sizes: Sequence[int], hnsw_up_to: int, work_dir: Path) -> None:
    async with Cluster(work_dir) as cluster:
        for size in sizes:
            await cluster.bare(_DATABASE)
            connection = await cluster.connect(_DATABASE)
            try:
                await _print_size(connection, size, with_hnsw=size <= hnsw_up_to)
            finally:
                await connection.close()
        await cluster.drop(_DATABASE)


async def _print_size(connection: asyncpg.Connection[Any], size: int, *, with_hnsw: bool) -> None:
    questions = await _filled(connection, size)
    print(f"\n{size:,} vectors | scope | ms of CPU a question | the exact 50 found\n---|---|---:|---:", flush=True)
    exact: Exact = {scope: {} for scope in (BIG, 2)}
    for scope in (BIG, 2):
        began = time.process_time()
        found = await connection.fetch(statement("vector_search_load"), [scope])
        held = VectorRows.of([(row["event_seq"], row["kept"]) for row in found], DIMENSIONS)
        print(f"in process, read and kept once | {len(held):,} | {(time.process_time() - began) * 1000:.1f} |")

        async def in_process(question: bytes, held: VectorRows = held) -> Sequence[int]:
            like = held.likeness(question, held.seq)
            return [int(seq) for seq in held.seq[np.argsort(-like, kind="stable")[:NEAREST]]]

        for question in questions:
            exact[scope][question] = set(await in_process(question))
        await _print("in process, all cosines", len(held), exact[scope], in_process, None)
        for name, what in (("all cosines", "vector_search_all"), ("the nearest, exact", "vector_search_best")):
            asking = _asking(connection, what, scope)
            await _print(f"pgvector, {name}", len(held), exact[scope], asking, connection)
    if with_hnsw:
        await _print_hnsw(connection, exact, size)


async def _print_hnsw(
    connection: asyncpg.Connection[Any],
    exact: Exact,
    size: int,
) -> None:
    await connection.execute("SET maintenance_work_mem = '2GB'; SET max_parallel_maintenance_workers = 0")
    began = _backend_s(connection)
    await connection.execute(statement("vector_search_hnsw"))
    took = _backend_s(connection) - began
    taken = await connection.fetchval(statement("vector_search_hnsw_bytes"))
    print(f"HNSW, made | {size:,} | {took:.0f} s, {taken / size:.0f} bytes a vector |")
    # A planner that knows better would read the scope instead; what the index does is the question.
    await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
    await connection.execute("SET hnsw.ef_search = 100")
    for iterative in ("off", "relaxed_order", "strict_order"):
        await connection.execute(f"SET hnsw.iterative_scan = {iterative}")
        for scope in (BIG, 2):
            asking = _asking(connection, "vector_search_best", scope)
            seen = size // 2 if scope == BIG else size // 100
            await _print(f"HNSW, iterative scans {iterative}", seen, exact[scope], asking, connection)


async def _print(
    name: str, seen: int, nearest_of: dict[bytes, set[int]], asking: Asking, connection: asyncpg.Connection[Any] | None
) -> None:
    """Print what a question costs, and how many of the nearest are found."""
    await asking(next(iter(nearest_of)))
    spent = 0.0
    shares: list[float] = []
    for question, nearest in nearest_of.items():
        began = time.process_time() + (0 if connection is None else _backend_s(connection))
        found = await asking(question)
        spent += time.process_time() + (0 if connection is None else _backend_s(connection)) - began
        shares.append(len(nearest & set(found[:NEAREST])) / len(nearest))
    print(f"{name} | {seen:,} | {spent / len(nearest_of) * 1000:.1f} | {sum(shares) / len(shares):.3f}", flush=True)


def _asking(connection: asyncpg.Connection[Any], what: str, scope: int) -> Asking:
    async def ask(question: bytes) -> Sequence[int]:
        rows = await connection.fetch(statement(what), [scope], _components(question))
        if what == "vector_search_all":
            distance = np.array([row["distance"] for row in rows])
            return [rows[at]["event_seq"] for at in np.argsort(distance, kind="stable")[:NEAREST].tolist()]
        return [row["event_seq"] for row in rows]

    return ask


def _backend_s(connection: asyncpg.Connection[Any]) -> float:
    """Return the processor time of a connection's backend, in seconds."""
    fields = Path(f"/proc/{connection.get_server_pid()}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _filled(connection: asyncpg.Connection[Any], size: int) -> list[bytes]:
    """Fill the table, and return questions that lie in the same clusters."""
    await connection.execute(statement("vector_search_table"))
    await connection.set_type_codec("halfvec", encoder=_encoded, decoder=bytes, format="binary", schema="public")
    await connection.execute("SET max_parallel_workers_per_gather = 0")
    chance = np.random.default_rng(size)
    centres = chance.standard_normal((_CLUSTERS, DIMENSIONS)).astype(np.float32)
    for first in range(0, size, _AT_ONCE):
        rows = list(_rows(chance, centres, first, min(_AT_ONCE, size - first)))
        await connection.copy_records_to_table("vector_search", records=rows)
    await connection.execute(statement("vector_search_key"))
    await connection.execute(statement("vector_search_settled"))
    return [kept for _, _, kept, _ in _rows(chance, centres, 0, QUESTIONS)]


def _rows(
    chance: np.random.Generator, centres: Floats, first: int, count: int
) -> Iterator[tuple[int, int, bytes, list[float]]]:
    near = centres[chance.integers(0, len(centres), count)]
    vectors = near + 1.5 * chance.standard_normal(near.shape).astype(np.float32)
    for at, vector in enumerate(vectors, first):
        kept = quantised(vector)
        if kept is None:
            raise AssertionError("a vector of chance is not zero")
        scope = BIG if at % 2 else 2 + at // 2 % OTHER_SCOPES
        yield scope, at, kept, _components(kept)


def _components(kept: bytes) -> list[float]:
    return [float(value) for value in np.frombuffer(kept, dtype=np.int8)]


def _encoded(values: list[float]) -> bytes:
    """Return a vector in pgvector's binary form of half precision."""
    return len(values).to_bytes(2, "big") + b"\0\0" + np.array(values, dtype=">f2").tobytes()


if __name__ == "__main__":
    main()
