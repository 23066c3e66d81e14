"""Look every package of the lock up in advisories that are on this machine: `make audit`, and a part of `make lint`.

The advisories are those of OSV (https://osv.dev) for PyPI, as it exports them: one JSON file for each, in a folder or
in the `all.zip` of https://osv-vulnerabilities.storage.googleapis.com/PyPI/. OSV_DATA names either. Nothing is fetched
here, so that lint needs no network; without OSV_DATA it says that nothing was audited.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)


def locked(folder: Path) -> set[tuple[str, str]]:
    """Return name and version of every package of the lock, names as PyPI compares them (PEP 503)."""
    return {
        (_plain(name), version)
        for file in folder.glob("*.txt")
        for name, version in _PINNED.findall(file.read_text(encoding="utf-8"))
    }


def advisories(source: Path) -> Iterator[dict[str, Any]]:
    """Yield the advisories of a folder or a zip file."""
    if source.is_dir():
        for file in sorted(source.glob("*.json")):
            yield json.loads(file.read_text(encoding="utf-8"))
        return
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def concerned(advisory: dict[str, Any], packages: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the packages that an advisory is about: by its list of versions, or within one of its ranges."""
    if "withdrawn" in advisory:
        return
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI":
            continue
        for name, version in packages:
            if name == _plain(package["name"]) and (
                version in affected.get("versions", ())
                or any(_within(version, each["events"]) for each in affected.get("ranges", ()) if each["type"] != "GIT")
            ):
                yield name, version


def _within(version: str, events: list[dict[str, str]]) -> bool:
    """Tell whether a version lies in a range of OSV's: introduced, and not fixed by then."""
    try:
        at = Version(version)
        inside = False
        for event in sorted(events, key=lambda event: Version(next(iter(event.values())))):
            if "introduced" in event:
                inside = inside or at >= Version(event["introduced"])
            elif "fixed" in event:
                inside = inside and at < Version(event["fixed"])
            elif "last_affected" in event:
                inside = inside and at <= Version(event["last_affected"])
    except InvalidVersion:
        return False
    return inside


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Print every advisory about the lock; return 1 when there is one."""
    packages = locked(ROOT / "requirements")
    given = os.environ.get("OSV_DATA")
    if not given:
        print("audit of the lock SKIPPED: OSV_DATA names no advisories (OSV's PyPI/all.zip, or a folder of its files)")
        return 0
    read, found = 0, 0
    for advisory in advisories(Path(given)):
        read += 1
        for name, version in sorted(set(concerned(advisory, packages))):
            found += 1
            print(f"{name} {version}: {advisory['id']} {advisory.get('summary', '')}")
    print(f"{len(packages)} packages, {read} advisories, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
