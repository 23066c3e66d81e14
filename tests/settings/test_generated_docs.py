from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_generated_pages_are_current() -> None:
    """The references of settings, errors, tools and metrics say what the code says."""
    script = ROOT / "scripts" / "generate_docs.py"
    run = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_error_of_the_tree_has_its_own_documented_code() -> None:
    """No two errors share a code, each says what it means, and the module pictures each family."""
    from myria import errors

    def leaves(error: type[errors.MyriaError]) -> list[type[errors.MyriaError]]:
        below = error.__subclasses__()
        return [leaf for kind in below for leaf in leaves(kind)] if below else [error]

    found = [leaf for leaf in leaves(errors.MyriaError) if leaf.__module__ == errors.__name__]
    codes = [leaf.code for leaf in found]
    assert len(set(codes)) == len(codes)
    assert all(leaf.__doc__ for leaf in found)
    for family in errors.MyriaError.__subclasses__():
        assert f" {family.__name__} " in (errors.__doc__ or "")
