"""Draw docs/console-light.png and docs/console-dark.png: the console over the sample, in a headless Chromium.

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
SIZE = "1280,880"
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
    f"--window-size={SIZE}",
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
            for scheme, name in ((0, "dark"), (1, "light")):
                picture = ROOT / "docs" / f"console-{name}.png"
                _draw(chromium, f"{address}/ask?{urlencode(QUESTION)}", picture, Path(folder) / name, scheme)
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


def _draw(chromium: str, url: str, picture: Path, profile: Path, scheme: int) -> None:
    """Draw a page as a picture; scheme 0 is dark, 1 is light."""
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # Chromium refuses to put root into a sandbox
    flags += [f"--user-data-dir={profile}", f"--blink-settings=preferredColorScheme={scheme}"]
    subprocess.run([chromium, *flags, f"--screenshot={picture}", url], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
