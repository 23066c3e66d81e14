"""Draw what benchmarks/peers.py found: a row for each system, a mark for each figure on a scale from 0 to 1.

python -m benchmarks.peer_picture [--report benchmarks/out/peers.json] [--into docs/peers.svg]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import orjson

from benchmarks.cluster import ROOT
from benchmarks.peer_systems.systems import SYSTEMS

MARKS: Final = {
    "R@10": "all questions, R@10",
    "multi-hop R@10": "multi-hop, R@10",
    "now: newer above the older": "changed: newer above the older",
}
"""Figure and what the legend calls it."""

_LEFT, _WIDTH, _ROW, _TOP = 290, 960, 30, 84
_SCALE = _WIDTH - _LEFT - 40

_STYLE: Final = """<style>
    .page { fill: #ffffff } .line { stroke: #d0d7de } .own { fill: #f6f3ea } text { fill: #1f2328 }
    .soft { fill: #57606a } .m0 { fill: #3b6ea8 } .m1 { fill: #c2571a } .m2 { fill: #4d7c3f }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } .line { stroke: #30363d } .own { fill: #26210f } text { fill: #e6edf3 }
      .soft { fill: #a8b1bb } .m0 { fill: #6ea8e6 } .m1 { fill: #f0883e } .m2 { fill: #84b876 }
    }
  </style>"""


def picture(report: Mapping[str, Any]) -> str:
    """Return the systems of a report as SVG, in the order of `SYSTEMS`."""
    names = [name for name in SYSTEMS if name in report]
    bottom = _TOP + _ROW * len(names)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 16}" role="img" '
        'font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="14">',
        "<title>What each system finds of the same events</title>",
        _STYLE,
        f'<rect class="page" width="{_WIDTH}" height="{bottom + 16}"/>',
    ]
    for at, legend in enumerate(MARKS.values()):
        x = 20 + at * 230
        drawn += [_mark(at, x, 24), f'<text x="{x + 14}" y="29">{escape(legend)}</text>']
    for tenth in range(0, 11, 2):
        x = _LEFT + _SCALE * tenth // 10
        drawn.append(f'<line class="line" x1="{x}" x2="{x}" y1="{_TOP - 12}" y2="{bottom}"/>')
        drawn.append(f'<text class="soft" x="{x}" y="{_TOP - 18}" text-anchor="middle">{tenth / 10:.1f}</text>')
    for row, name in enumerate(names):
        y = _TOP + _ROW * row + _ROW // 2
        if name.startswith("myria"):
            drawn.append(f'<rect class="own" x="8" y="{y - 14}" width="{_WIDTH - 16}" height="28" opacity="0.6"/>')
        drawn.append(f'<text x="{_LEFT - 16}" y="{y + 5}" text-anchor="end">{escape(SYSTEMS[name].title)}</text>')
        drawn += [_mark(at, _LEFT + _SCALE * report[name][figure], y) for at, figure in enumerate(MARKS)]
    return "\n".join([*drawn, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    options = argparse.ArgumentParser(description="Draw what benchmarks.peers found.")
    options.add_argument("--report", type=Path, default=Path(__file__).with_name("out") / "peers.json")
    options.add_argument("--into", type=Path, default=ROOT / "docs" / "peers.svg")
    given = options.parse_args()
    given.into.write_text(picture(orjson.loads(given.report.read_bytes())), encoding="utf-8")


def _mark(which: int, x: float, y: float) -> str:
    if which == 0:
        return f'<circle class="m0" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
    if which == 1:
        return f'<rect class="m1" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    return f'<path class="m2" d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"/>'


if __name__ == "__main__":
    main()
