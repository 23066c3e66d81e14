"""Things that are compared: each is driven in turn, round by round, and one table says what the rounds gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from benchmarks.load import Result, drive
from benchmarks.processes import Server, cpu_seconds
from benchmarks.report import Report, median, number, ratios
from myria_cli import console


@dataclass(slots=True, kw_only=True)
class Side:
    """Requests to one server, and what each round of them gave.

    Attributes:
        each: items of a request, such as the events of a batch.
        kept: items acknowledged in all rounds, those that do not count included.
        cpu_us: the server's processor time for an item, by round.
    """

    name: str
    server: Server
    requests: Sequence[bytes]
    connections: int = 1
    each: int = 1
    kept: int = 0
    results: list[Result] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    async def round(self, *, seconds: float | None, count: int | None, counted: bool) -> Result:
        """Drive it for a time or a number of requests; a round that is not counted warms up."""
        cpu_s = cpu_seconds(self.server.pid)
        result = await drive(
            self.requests,
            port=self.server.port,
            connections=self.connections,
            seconds=seconds,
            count=count,
        )
        items = result.acknowledged * self.each
        self.kept += items
        if counted:
            self.results.append(result)
            self.cpu_us.append((cpu_seconds(self.server.pid) - cpu_s) / items * 1e6)
        return result

    def ms(self, q: float) -> list[float]:
        """Return a quantile of the latencies of each round."""
        return [result.ms(q) for result in self.results]

    def rates(self) -> list[float]:
        """Return the items that were acknowledged in a second of each round."""
        return [result.throughput * self.each for result in self.results]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a side took beside the first one: medians of the ratios of rounds."""

    rate: float
    p50: float
    p95: float


async def in_turns(
    sides: Sequence[Side], *, rounds: int, seconds: float | None = None, count: int | None = None
) -> None:
    """Drive the sides in turn, after a round that does not count; who comes first alternates."""
    for number_ in range(rounds + 1):
        for side in sides if number_ % 2 else reversed(sides):
            result = await side.round(seconds=seconds, count=count, counted=number_ > 0)
            rate = result.throughput * side.each
            console.say(f"round {number_}: {side.name}: {rate:,.0f}/s, p95 {result.ms(0.95):.2f} ms", "dim")


def publish(report: Report, title: str, sides: Sequence[Side]) -> list[Compared]:
    """Print and note what the sides gave; return how each compares with the first."""
    first = sides[0]
    rows, compared = [], []
    for side in sides:
        one = Compared(
            rate=median(ratios(side.rates(), first.rates())),
            p50=median(ratios(side.ms(0.5), first.ms(0.5))),
            p95=median(ratios(side.ms(0.95), first.ms(0.95))),
        )
        compared.append(one)
        rounds = {
            "per_s": side.rates(),
            "p50_ms": side.ms(0.5),
            "p95_ms": side.ms(0.95),
            "server_us": side.cpu_us,
        }
        report.figures[f"{title}: {side.name}"] = {**rounds, "beside": asdict(one)}
        figures = (*map(median, rounds.values()), one.rate, one.p95)
        rows.append((side.name, *map(number, figures)))
    columns = ("", "a second", "p50 ms", "p95 ms", "server µs", "rate ratio", "p95 ratio")
    report.table(f"{title}, medians of rounds", columns, rows)
    return compared
