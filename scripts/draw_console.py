"""Draw the pictures docs/console-*.png: pages of the console over the sample, in a headless Chromium.

Needs Debian's package `chromium`. Run it when pages look different: `.venv/bin/python scripts/draw_console.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
QUESTION = {"q": "what did we decide about the price?", "as": "rosa", "why": "on"}
PICTURES = (
    ("light", "ask?" + urlencode(QUESTION), "light", "1280,880"),
    ("dark", "ask?" + urlencode(QUESTION), "dark", "1280,880"),
    ("topics", "topics?as=rosa", "light", "1280,700"),
    ("timeline", "topics?as=rosa&view=timeline&from=2026-02-01T00:00:00Z&to=2026-04-01T00:00:00Z", "light", "1280,620"),
    ("diff", "changes/diff?from=1&to=active", "light", "1280,560"),
)
"""Of each picture its name, the page's address, its colours and its size."""

LATER = (
    ("rosa", "Remember: the price is 149 euros again from 16 March, since Kessler's heater costs 52."),
    ("ines", "149 it is. I tell the printers before Friday, and the preorder page says so too."),
    ("jonas", "The EMC test moved to 30 March: the lab in Bremen is full until then."),
)
"""What is said after the sample, so that two snapshots differ."""

LARGEST = 200_000
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=4000",
)


def main() -> int:
    """Return the exit status."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.stderr.write("this needs Chromium: apt-get install chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        demo = subprocess.Popen(
            [Path(sys.executable).parent / "myria", "demo", "--json", "--data-dir", f"{folder}/data", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            address = _address(demo)
            _say_more(Path(folder))
            for name, page, scheme, size in PICTURES:
                picture = ROOT / "docs" / f"console-{name}.png"
                _draw(chromium, f"{address}/{page}", picture, profile=Path(folder) / name, scheme=scheme, size=size)
                sys.stdout.write(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes\n")
                if picture.stat().st_size > LARGEST:
                    sys.stderr.write(f"{picture.name} has more than {LARGEST:,} bytes\n")
                    return 1
        finally:
            demo.terminate()
            demo.wait()
    return 0


def _address(demo: subprocess.Popen[str]) -> str:
    """Return where the demo serves the console, once the sample is built in."""
    text = ""
    for line in demo.stdout or ():
        text += line
        if '"console_url"' in line:
            found: str = json.loads(line)["console_url"]
            return found
    raise SystemExit(f"the demo ended, and had said:\n{text}")


def _say_more(folder: Path) -> None:
    """Append what is said after the sample, and build it in."""
    events = [
        {
            "timestamp": f"2026-03-16T10:0{number}:00Z",
            "channel": "slack",
            "context_id": "pricing",
            "participants": ["agent_fern", "ines", "jonas", "mika", "rosa"],
            "payload": {"speaker": speaker.title(), "text": text},
        }
        for number, (speaker, text) in enumerate(LATER)
    ]
    file = folder / "later.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    myria = Path(sys.executable).parent / "myria"
    for command in (("import", str(file)), ("rebuild", "--wait")):
        subprocess.run([myria, *command, "--data-dir", f"{folder}/data"], check=True, stdout=subprocess.DEVNULL)


def _draw(chromium: str, url: str, picture: Path, *, profile: Path, scheme: str, size: str) -> None:
    """Draw a page as a picture of some size, in `light` or `dark` colours."""
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # Chromium refuses to put root into a sandbox
    flags += [f"--user-data-dir={profile}", f"--blink-settings=preferredColorScheme={('dark', 'light').index(scheme)}"]
    flags.append(f"--window-size={size}")
    subprocess.run([chromium, *flags, f"--screenshot={picture}", url], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
