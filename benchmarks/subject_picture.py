"""Draw what benchmarks/subject_builds.py found: CPU and rows of a build of 100 events, by the size of the scope.

python -m benchmarks.subject_picture [--report benchmarks/out/subject_builds.json] [--into docs/subject-builds.svg]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.cluster import ROOT
from benchmarks.figures import median
from benchmarks.subject_builds import MOST_CPU_RATIO, MOST_ROWS

_WIDTH, _HEIGHT = 960, 320
_LEFT, _TOP, _BOTTOM, _PANEL, _GAP = 70, 70, 260, 350, 120

_STYLE: Final = """<style>
    .page { fill: #ffffff } .line { stroke: #d0d7de } text { fill: #1f2328 } .soft { fill: #57606a }
    .whole { fill: #3b6ea8 } .part { fill: #9cb9d8 } .limit { stroke: #c2571a; stroke-dasharray: 6 4 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } .line { stroke: #30363d } text { fill: #e6edf3 } .soft { fill: #a8b1bb }
      .whole { fill: #6ea8e6 } .part { fill: #2f4b6b } .limit { stroke: #f0883e }
    }
  </style>"""


def picture(report: Mapping[str, Any]) -> str:
    """Return a report as SVG: a bar for each size in both panels, the limit as a broken line."""
    scopes = [(int(name.split()[-1]), of) for name, of in report.items() if name.startswith("beside ")]
    base = median(scopes[0][1]["cpu_s"])
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="14">',
        "<title>A build of 100 events beside scopes of several sizes: CPU and rows</title>",
        _STYLE,
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        *_panel(
            _LEFT,
            "seconds of CPU (pale: the start of the process)",
            [(size, median(of["cpu_s"]), median(of["idle_cpu_s"])) for size, of in scopes],
            limit=base * MOST_CPU_RATIO,
            written=lambda value: f"{value:.2f}",
        ),
        *_panel(
            _LEFT + _PANEL + _GAP,
            "most rows written (pale: not of subjects)",
            [
                (size, max(of["rows"]), max(of["rows"]) - of["rows_of_subjects"][of["rows"].index(max(of["rows"]))])
                for size, of in scopes
            ],
            limit=MOST_ROWS,
            written=lambda value: f"{value:,.0f}",
        ),
    ]
    return "\n".join([*drawn, "</svg>", ""])


def _panel(
    left: int,
    title: str,
    bars: Sequence[tuple[int, float, float]],
    *,
    limit: float,
    written: Callable[[float], str],
) -> list[str]:
    scale = (_BOTTOM - _TOP) / max(limit, *(value for _, value, _ in bars))
    step = _PANEL // len(bars)
    drawn = [f'<text x="{left}" y="36">{title}</text>']
    for at, (size, value, part) in enumerate(bars):
        x, middle = left + at * step, left + at * step + step // 2 - 10
        for name, height in (("whole", value * scale), ("part", part * scale)):
            drawn.append(
                f'<rect class="{name}" x="{x}" y="{_BOTTOM - height:.1f}" width="{step - 20}" height="{height:.1f}"/>'
            )
        drawn.append(
            f'<text x="{middle}" y="{_BOTTOM - value * scale - 6:.1f}" text-anchor="middle">{written(value)}</text>'
        )
        drawn.append(f'<text class="soft" x="{middle}" y="{_BOTTOM + 22}" text-anchor="middle">{size:,}</text>')
    y = _BOTTOM - limit * scale
    drawn.append(f'<line class="line" x1="{left}" x2="{left + _PANEL}" y1="{_BOTTOM}" y2="{_BOTTOM}"/>')
    drawn.append(f'<line class="limit" x1="{left}" x2="{left + _PANEL}" y1="{y:.1f}" y2="{y:.1f}"/>')
    drawn.append(
        f'<text class="soft" x="{left + _PANEL}" y="{y - 6:.1f}" text-anchor="end">limit {written(limit)}</text>'
    )
    drawn.append(f'<text class="soft" x="{left}" y="{_BOTTOM + 44}">events in the scope</text>')
    return drawn


def main() -> None:
    """Write the picture."""
    options = argparse.ArgumentParser(description="Draw what benchmarks.subject_builds found.")
    options.add_argument("--report", type=Path, default=Path(__file__).with_name("out") / "subject_builds.json")
    options.add_argument("--into", type=Path, default=ROOT / "docs" / "subject-builds.svg")
    given = options.parse_args()
    given.into.write_text(picture(orjson.loads(given.report.read_bytes())), encoding="utf-8")


if __name__ == "__main__":
    main()
