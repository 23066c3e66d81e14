"""Draw the Grafana dashboards as SVG pictures, with the same queries, from a real Prometheus.

Usage: draw_dashboards.py --prometheus URL [--minutes N] [--into FOLDER] [--rate 30s]

Writes dashboard-serving.svg and dashboard-builds.svg (docs/ by default). Grafana is not used: the panels, their places,
queries, units, limits and marks are read from charts/myria/files/dashboards/*.json, and drawn like Grafana's, but
plainer. tests/monitoring/scene.py makes an installation with data to draw:

    python -m tests.monitoring.scene --minutes 15
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import httpx

ROOT = Path(__file__).resolve().parent.parent
DASHBOARDS = ROOT / "charts/myria/files/dashboards"
COLUMN, LINE, GAP, MARGIN = 50, 26, 8, 12
POINTS = 150
SERIES = ("#3274d9", "#e0752d", "#56a64b", "#a352cc", "#e02f44", "#f2cc0c", "#0aa2a2", "#b877d9", "#705da0", "#c4162a")
COLOURS = {"green": "#3b8f3e", "red": "#d23c4b", "blue": "#3d71c4", "#EAB839": "#c99a1d", "transparent": "#ffffff"}
INK, FAINT, GRID, PAPER, BACK = "#24292e", "#6e7681", "#e4e7eb", "#ffffff", "#f4f5f7"
FONT = "-apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series: what the legend calls it, and pairs of Unix time and value."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that is drawn, in Unix seconds."""

    start: float
    end: float

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(1.0, (self.end - self.start) / POINTS)


class Prometheus:
    """A server that answers the dashboards' queries."""

    def __init__(self, url: str, window: Window, rate: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30.0)
        self._window = window
        self._variables = {
            "$__rate_interval": rate,
            "$__interval": f"{math.ceil(window.step)}s",
            "$namespace": ".*",
            "$tenant": ".*",
        }

    def ask(self, query: str, legend: str = "", *, step: float | None = None) -> list[Line]:
        """Return the series of a query over the window; raises httpx.HTTPStatusError when Prometheus refuses it."""
        for name, value in self._variables.items():
            query = query.replace(name, value)
        window = self._window
        parameters: dict[str, str | float] = {"query": query, "start": window.start, "end": window.end}
        parameters["step"] = step or window.step
        answer = self._client.get("/api/v1/query_range", params=parameters)
        answer.raise_for_status()
        return [
            Line(
                name=_named(legend, series["metric"]),
                points=[(at, float(value)) for at, value in series["values"] if math.isfinite(float(value))],
            )
            for series in answer.json()["data"]["result"]
        ]


def main(arguments: Sequence[str]) -> int:
    """Draw both dashboards; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--prometheus", required=True, help="its URL, e.g. http://127.0.0.1:9090")
    parser.add_argument("--minutes", type=float, default=60, help="how far back to draw")
    parser.add_argument("--into", type=Path, default=ROOT / "docs", help="the folder for the pictures")
    parser.add_argument("--rate", default="2m", help="what $__rate_interval stands for: four scrapes")
    options = parser.parse_args(arguments)
    end = time.time()
    window = Window(start=end - options.minutes * 60, end=end)
    for name in ("serving", "builds"):
        print(write_picture(options.prometheus, window, name, options.into, options.rate))
    return 0


def write_picture(url: str, window: Window, name: str, into: Path, rate: str) -> Path:
    """Draw one dashboard from a Prometheus; return the file."""
    dashboard: Json = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    prometheus = Prometheus(url, window, rate)
    marks = [
        (at, annotation["iconColor"])
        for annotation in dashboard["annotations"]["list"]
        for at in _beginnings(prometheus.ask(annotation["target"]["expr"], step=max(5.0, window.step)))
    ]
    path = into / f"dashboard-{name}.svg"
    path.write_text(picture(dashboard, prometheus, window, marks), encoding="utf-8")
    return path


def picture(dashboard: Json, prometheus: Prometheus, window: Window, marks: Sequence[tuple[float, str]]) -> str:
    """Return the whole dashboard as SVG."""
    lines = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    width, height = 24 * COLUMN + 2 * MARGIN, lines * LINE + 2 * MARGIN + 34
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONT}" font-size="11" fill="{INK}">',
        f"<title>{escape(dashboard['title'])}</title>",
        f'<rect width="{width}" height="{height}" fill="{BACK}"/>',
        _text(MARGIN + 2, 28, dashboard["title"], size=17, weight=600),
        _text(width - MARGIN - 2, 28, _span(window), anchor="end", colour=FAINT, size=12),
    ]
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        x, y = MARGIN + grid["x"] * COLUMN, MARGIN + 34 + grid["y"] * LINE
        wide, high = grid["w"] * COLUMN - GAP, grid["h"] * LINE - GAP
        if panel["type"] == "row":
            drawn.append(_text(x + 2, y + 16, panel["title"], size=13, weight=600, colour=FAINT))
            continue
        series = [
            line
            for target in panel["targets"]
            for line in prometheus.ask(target["expr"], target["legendFormat"].replace("__auto", ""))
            if line.points
        ]
        drawn.append(f'<g transform="translate({x} {y})">')
        if panel["type"] == "stat":
            drawn += _number(panel, series, window, wide, high)
        else:
            drawn += _graph(panel, series, window, marks, (wide, high))
        drawn.append("</g>")
    return "\n".join([*drawn, "</svg>", ""])


def _number(panel: Json, series: Sequence[Line], window: Window, width: int, height: int) -> Iterator[str]:
    """Yield one number on the colour of its limits, with its past as a shadow."""
    defaults = panel["fieldConfig"]["defaults"]
    points = series[0].points if series else []
    value = points[-1][1] if points else None
    colour = _colour(value, defaults["thresholds"]["steps"]) if value is not None else FAINT
    yield f'<rect width="{width}" height="{height}" rx="3" fill="{colour}"/>'
    if len(points) > 1:
        top = max(at[1] for at in points) or 1.0
        places = [
            f"{(at - window.start) / (window.end - window.start) * width:.0f},{height - 2 - shown / top * 26:.1f}"
            for at, shown in _thinned(points)
        ]
        first, last = places[0].split(",")[0], places[-1].split(",")[0]
        yield (
            f'<polygon points="{first},{height} {" ".join(places)} {last},{height}" '
            'fill="#ffffff" fill-opacity="0.22"/>'
        )
    yield _text(9, 18, panel["title"], colour="#ffffff", size=12, weight=600)
    words = {key: entry["text"] for mapping in defaults["mappings"] for key, entry in mapping["options"].items()}
    shown = "–" if value is None else words.get(f"{value:g}", _value(value, defaults["unit"]))
    size = min(26.0, (width - 16) / max(1, len(shown)) * 1.6)
    yield _text(width / 2, height / 2 + 16, shown, colour="#ffffff", size=size, weight=600, anchor="middle")


def _graph(
    panel: Json, series: Sequence[Line], window: Window, marks: Sequence[tuple[float, str]], size: tuple[int, int]
) -> Iterator[str]:
    """Yield lines over time, with axes, limits, marks and a legend."""
    defaults = panel["fieldConfig"]["defaults"]
    look, unit = defaults["custom"], defaults["unit"]
    width, height = size
    left, top, right, bottom = 58, 30, width - 12, height - 44
    yield f'<rect width="{width}" height="{height}" rx="3" fill="{PAPER}" stroke="{GRID}"/>'
    yield _text(9, 18, panel["title"], size=12, weight=600)
    if not series:
        yield _text(width / 2, height / 2, "none", anchor="middle", colour=FAINT, size=12)
        return
    stacked = look["stacking"]["mode"] == "normal"
    ticks = _ticks(max(_tops(series) if stacked else (value for curve in series for _, value in curve.points)), unit)

    def across(at: float) -> float:
        return left + (at - window.start) / (window.end - window.start) * (right - left)

    def up(value: float) -> float:
        return bottom - min(value, ticks[-1]) / ticks[-1] * (bottom - top)

    for tick in ticks:
        yield f'<path d="M{left} {up(tick):.1f}H{right}" stroke="{GRID}"/>'
        yield _text(left - 6, up(tick) + 4, _value(tick, unit, ticks[-1]), anchor="end", colour=FAINT, size=10)
    for at in _clock(window):
        yield _text(
            across(at), bottom + 14, time.strftime("%H:%M", time.gmtime(at)), anchor="middle", colour=FAINT, size=10
        )
    for at, colour in marks:
        yield (
            f'<path d="M{across(at):.1f} {top}V{bottom}" stroke="{COLOURS[colour]}" stroke-dasharray="3 3" '
            'stroke-opacity="0.75"/>'
            f'<path d="M{across(at) - 4:.1f} {bottom + 5}h8l-4 -6z" fill="{COLOURS[colour]}"/>'
        )
    base: dict[float, float] = {}
    for index, curve in enumerate(series):
        colour = SERIES[index % len(SERIES)]
        lows = {at: base.get(at, 0.0) if stacked else 0.0 for at, _ in curve.points}
        if stacked:
            base.update({at: lows[at] + value for at, value in curve.points})
        for run in _runs(curve.points, window.step):
            line = " ".join(f"{across(at):.1f},{up(lows[at] + value):.1f}" for at, value in run)
            if stacked:
                under = " ".join(f"{across(at):.1f},{up(lows[at]):.1f}" for at, _ in reversed(run))
                yield f'<polygon points="{line} {under}" fill="{colour}" fill-opacity="0.25"/>'
            yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    if look["thresholdsStyle"]["mode"] == "dashed":
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is not None and step["value"] <= ticks[-1]:
                yield (
                    f'<path d="M{left} {up(step["value"]):.1f}H{right}" stroke="{COLOURS[step["color"]]}" '
                    'stroke-dasharray="6 4" stroke-width="1.3"/>'
                )
    yield from _legend(series, left, height - 10, right)


def _legend(series: Sequence[Line], x: float, y: float, right: float) -> Iterator[str]:
    for index, curve in enumerate(series):
        wide = 22 + len(curve.name) * 6.1
        room = right - x - (0 if index == len(series) - 1 else 50)
        if wide > room and index:
            yield _text(x, y, f"+ {len(series) - index}", colour=FAINT, size=10.5)
            return
        yield f'<path d="M{x:.0f} {y - 4:.0f}h12" stroke="{SERIES[index % len(SERIES)]}" stroke-width="3"/>'
        yield _text(x + 16, y, curve.name, size=10.5)
        x += wide + 8


def _text(
    x: float, y: float, text: str, *, size: float = 11, weight: int = 400, anchor: str = "start", colour: str = INK
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size:g}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(text)}</text>'
    )


def _named(legend: str, labels: Mapping[str, str]) -> str:
    name = re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)
    return " ".join(name.split()) or "value"


def _value(value: float, unit: str, like: float | None = None) -> str:
    """Return a number as people read it: 12.4 ms, 3.1 req/s, 4.2 %, 1.5 GiB; in the unit that fits `like`."""
    size = abs(value if like is None else like)
    if unit == "s" and not size:
        return "0 s"
    if unit == "currencyUSD":
        return f"${value:.{0 if size >= 100 else 2 if size >= 1 else 4}f}"
    scales: Sequence[tuple[float, float, str]]
    if unit == "s":
        scales = ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"), (math.inf, 3600, "h"))
    elif unit == "bytes":
        scales = [(1024.0 ** (n + 1), 1024.0**n, name) for n, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))]
    elif unit == "percentunit":
        scales = ((math.inf, 0.01, "%"),)
    else:
        ending = {"reqps": "req/s", "cps": "/s"}.get(unit, "")
        scales = ((10_000, 1, ending), (math.inf, 1000, f"k {ending}"))
    factor, name = next((factor, name) for limit, factor, name in scales if size < limit or limit == scales[-1][0])
    return f"{_digits(value / factor)} {name}".rstrip()


def _digits(value: float) -> str:
    size = abs(value)
    places = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2
    return f"{value:.{places}f}".rstrip("0").rstrip(".") if places else f"{value:.0f}"


def _ticks(highest: float, unit: str) -> list[float]:
    """Return three to six round values from 0 up to at least the highest."""
    if highest <= 0:
        return [0.0, 1.0]
    scale = 1.0
    if unit == "bytes":
        scale = 1024.0 ** math.floor(math.log(highest, 1024))
    elif unit == "s" and highest > 100:
        scale = 60.0 if highest <= 6000 else 3600.0
    rough = highest / scale / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(base for base in (1, 2, 5, 10) if base * power >= rough * 0.999) * power * scale
    count = math.ceil(highest / step - 1e-9)
    return [step * index for index in range(count + 1)]


def _tops(series: Sequence[Line]) -> list[float]:
    sums: dict[float, float] = {}
    for curve in series:
        for at, value in curve.points:
            sums[at] = sums.get(at, 0.0) + value
    return list(sums.values())


def _runs(points: Sequence[tuple[float, float]], step: float) -> Iterator[list[tuple[float, float]]]:
    """Yield the parts between holes: a line is not drawn where nothing was measured."""
    run: list[tuple[float, float]] = []
    for point in points:
        if run and point[0] - run[-1][0] > 1.5 * step:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return points[:: max(1, len(points) // 50)]


def _beginnings(series: Sequence[Line]) -> Iterator[float]:
    """Yield each time at which a series began to have values: that is when something happened."""
    for curve in series:
        last = -math.inf
        for at, _ in curve.points:
            if at - last > 45:
                yield at
            last = at


def _clock(window: Window) -> Iterator[float]:
    span = window.end - window.start
    step = next(
        seconds
        for seconds in (60, 120, 300, 600, 900, 1800, 3600, 10800, 86400)
        if span / seconds <= 7 or seconds == 86400
    )
    at = math.ceil(window.start / step) * step
    while at <= window.end:
        yield at
        at += step


def _span(window: Window) -> str:
    clock = [time.strftime("%H:%M", time.gmtime(at)) for at in (window.start, window.end)]
    return f"{clock[0]} to {clock[1]} UTC"


def _colour(value: float, steps: Sequence[Json]) -> str:
    colour = steps[0]["color"]
    for step in steps:
        if step["value"] is not None and value >= step["value"]:
            colour = step["color"]
    return COLOURS[colour]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
