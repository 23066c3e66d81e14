"""Print the software bill of materials of a Python environment as CycloneDX 1.6 JSON.

Usage: sbom.py PYTHON

PYTHON is the environment's interpreter. The same environment gives the same bytes: components in order of their names,
no time, no random number. The base image's publisher lists what it contains (Debian's packages, Python itself).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

ROOT = "myria"
NAMESPACE = uuid.UUID("6f1d5b0e-1f0a-4c57-9d0e-6d1f9a1c7b11")
"""For serial numbers that are derived from the content."""

_LIST = """
import json
from importlib.metadata import distributions
print(json.dumps([
    {
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "licence": distribution.metadata.get("License-Expression") or "",
        "summary": distribution.metadata.get("Summary") or "",
        "requires": distribution.requires or [],
    }
    for distribution in distributions()
]))
"""


def installed(python: str) -> list[dict[str, Any]]:
    """Return what is installed in an environment, in order of the names."""
    listed = subprocess.run([python, "-I", "-c", _LIST], capture_output=True, text=True, check=True).stdout
    return sorted(json.loads(listed), key=lambda distribution: normal(distribution["name"]))


def normal(name: str) -> str:
    """Return a distribution's name as package URLs write it."""
    return name.lower().replace("_", "-").replace(".", "-")


def component(distribution: dict[str, Any]) -> Component:
    """Return a distribution as a component."""
    url = PackageURL(type="pypi", name=normal(distribution["name"]), version=distribution["version"])
    return Component(
        type=ComponentType.APPLICATION if distribution["name"] == ROOT else ComponentType.LIBRARY,
        name=distribution["name"],
        version=distribution["version"],
        description=distribution["summary"] or None,
        licenses=[LicenseFactory().make_from_string(distribution["licence"])] if distribution["licence"] else [],
        purl=url,
        bom_ref=str(url),
    )


def bill(distributions: list[dict[str, Any]]) -> str:
    """Return the bill of materials as JSON."""
    components = {normal(distribution["name"]): component(distribution) for distribution in distributions}
    bom = Bom(metadata=BomMetaData(component=components[ROOT]))
    for name, entry in components.items():
        if name != ROOT:
            bom.components.add(entry)
    for listed in distributions:
        needed = {normal(_name(text)) for text in listed["requires"]} & set(components)
        bom.register_dependency(components[normal(listed["name"])], [components[name] for name in sorted(needed)])
    written = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    del written["metadata"]["timestamp"]
    del written["serialNumber"]
    text = json.dumps(written, sort_keys=True)
    written["serialNumber"] = uuid.uuid5(NAMESPACE, text).urn
    return json.dumps(written, indent=1, sort_keys=True, ensure_ascii=False)


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    return match[0] if match else ""


if __name__ == "__main__":
    print(bill(installed(sys.argv[1])))
