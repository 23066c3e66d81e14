"""Make or repair .venv: the locked packages with hashes checked, then this project itself.

Usage: make_venv.py {run,dev}

`run` is what the demo and a service need, `dev` adds the tools of `make lint` and `make test`. A stamp inside .venv
says what it was made from (the lock file, pyproject.toml, the Python, the place), so a second start does nothing, a
changed lock is followed, and a half-made or moved .venv is made again. Standard library only; needs a network the
first time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "myria-stamp"
PROFILES = ("run", "dev")
STEPS = 3


def main(arguments: list[str]) -> int:
    """Bring .venv up to the asked profile; return the exit status."""
    if len(arguments) != 1 or arguments[0] not in PROFILES:
        print(__doc__, file=sys.stderr)
        return 2
    (profile,) = arguments
    try:
        with only_one():
            if installed_profile() not in PROFILES[PROFILES.index(profile) :]:
                install(profile)
    except OSError as error:
        print(f"Cannot write {error.filename or VENV}: {error.strerror}.", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"\nSetting up .venv failed. The last lines of pip:\n{error.output}", file=sys.stderr)
        print("Mend that and run the same command again.", file=sys.stderr)
        return 1
    return 0


def installed_profile() -> str | None:
    """Return the profile a sound .venv holds, or None when it must be made."""
    profile, base, made_from = stamp()
    return profile if profile in PROFILES and (base, made_from) == (place(), digest(profile)) and runs() else None


def stamp() -> tuple[str, str, str]:
    """Return which profile .venv holds, where and on which Python it was made, and from what."""
    try:
        profile, base, made_from = STAMP.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "", "", ""
    return profile, base, made_from


def place() -> str:
    """Return this folder and the interpreter that .venv stands on, as a SHA-256: its scripts hold both."""
    return hashlib.sha256(f"{ROOT}\0{sys.version_info[:3]}\0{Path(sys.executable).resolve()}".encode()).hexdigest()


def digest(profile: str) -> str:
    """Return what a .venv of `profile` would be made from, as a SHA-256."""
    sources = (lock_file(profile), ROOT / "pyproject.toml", Path(__file__))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def lock_file(profile: str) -> Path:
    """Return the lock file of a profile."""
    return ROOT / "requirements" / f"{profile}.txt"


def runs() -> bool:
    """Tell whether .venv's interpreter starts and has pip."""
    command = [str(PYTHON), "-c", "import pip"]
    return PYTHON.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


def install(profile: str) -> None:
    """Make .venv if there is no complete one, then install the lock and the project."""
    started = time.monotonic()
    if stamp()[1] != place() or not runs():
        say(1, f"making .venv with Python {sys.version.split()[0]}")
        shutil.rmtree(VENV, ignore_errors=True)
        make = [sys.executable, "-m", "venv", str(VENV)]
        subprocess.run(make, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lock = lock_file(profile)
    total = len(re.findall(r"^\S+==", lock.read_text(encoding="utf-8"), re.MULTILINE))
    say(2, f"installing up to {total} locked packages (hashes checked)")
    # The lock names every package, so nothing is resolved; compiling takes a third of the time on one processor.
    pip("install", "--require-hashes", "--no-deps", "--no-compile", "--requirement", str(lock), total=total)
    compile_all([VENV / "lib"])
    say(3, "installing Myria itself")
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    compile_all(own_code())
    STAMP.write_text(f"{profile} {place()} {digest(profile)}\n", encoding="utf-8")
    print(f"Set up in {time.monotonic() - started:.0f} s.", flush=True)


def own_code() -> list[Path]:
    """Return the folders of this project's packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [ROOT / folder for folder in project["tool"]["hatch"]["build"]["dev-mode-dirs"]]


def compile_all(folders: Sequence[Path]) -> None:
    """Compile what lies in some folders, on all processors. Files in other dialects that some packages carry do not
    count.

    Where PYTHONDONTWRITEBYTECODE is set, each start would compile what it imports: half a second for Myria's own code.
    """
    command = [str(PYTHON), "-m", "compileall", "-qq", "-j", "0", *map(str, folders)]
    subprocess.run(command, capture_output=True, check=False)


def pip(*arguments: str, total: int = 0) -> None:
    """Run .venv's pip, showing now and then how far it is instead of its output.

    Raises:
        subprocess.CalledProcessError: pip failed; `output` holds its last lines.
    """
    command = [str(PYTHON), "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    tail: deque[str] = deque(maxlen=15)
    done = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line)
            if total and line.startswith(("Collecting ", "Requirement already satisfied:")):
                done += 1
                if done % 20 == 0:
                    print(f"      {done:>3}/{total}", flush=True)
            elif line.startswith("Installing collected"):
                # From here on .venv is neither the old nor the new one; a failed download leaves the old one intact.
                STAMP.unlink(missing_ok=True)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, output="".join(tail))


def say(step: int, what: str) -> None:
    """Announce a step."""
    print(f"[{step}/{STEPS}] {what}", flush=True)


@contextmanager
def only_one() -> Iterator[None]:
    """Let one set-up at a time work on .venv; a second one waits."""
    with (ROOT / "requirements" / "build.in").open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up is at work; waiting for it.", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    # A new .venv must not inherit a running one's packages or options.
    for name in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
        os.environ.pop(name, None)
    raise SystemExit(main(sys.argv[1:]))
