"""Write the generated parts of charts/myria: the definition's template from crds/, the schema of `settings` from the
settings themselves, the table in README.md from the comments in values.yaml.

Usage: generate_chart.py [--check]

`--check` writes nothing and exits 1 when a file is not current; the test suite runs it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from myria.access.issuers import Issuer
from myria.settings import SECTIONS
from myria.settings.sections import Section
from scripts import generated

CHART = generated.ROOT / "charts" / "myria"

_WORDS = frozenset({"title", "description", "default", "properties"})

CRD_HEAD = """\
{{- /* Generated from crds/myriarebuild.yaml by `make docs`; edit that file instead. */}}
{{- if .Values.crds.enabled }}
"""
CRD_METADATA = """\
metadata:
  {{- $keep := ternary (dict "helm.sh/resource-policy" "keep") (dict) .Values.crds.keep }}
  {{- include "myria.metadata" (dict "root" $ "cluster" true "name" "myriarebuilds.myria.dev" "annotations" $keep) \
| nindent 2 }}
"""


def crd_template() -> str:
    """Return the template of the CustomResourceDefinition: the file in crds/, with the release's metadata."""
    text = (generated.ROOT / "crds" / "myriarebuild.yaml").read_text(encoding="utf-8")
    body = re.sub(r"\A(#[^\n]*\n)+", "", text)
    if "{{" in body:
        raise SystemExit("crds/myriarebuild.yaml: double braces would be taken for a template")
    body, replaced = re.subn(r"^metadata:\n(  [^\n]*\n)+", lambda _: CRD_METADATA, body, count=1, flags=re.MULTILINE)
    if not replaced:
        raise SystemExit("crds/myriarebuild.yaml has no metadata")
    return f"{CRD_HEAD}{body}{{{{- end }}}}\n"


def schema() -> str:
    """Return values.schema.json with its parts `settings` and `auth.issuers` written anew."""
    document = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    document["properties"]["settings"] = {
        "description": "Myria's own settings, as in docs/settings.md",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: section_schema(section) for name, section in SECTIONS.items()},
    }
    issuer = Issuer.model_json_schema(ref_template="#/$defs/issuer{model}")
    definitions = {f"issuer{name}": part for name, part in issuer.pop("$defs").items()}
    document["$defs"] = {
        **{name: part for name, part in document["$defs"].items() if not name.startswith("issuer")},
        **_without_words(definitions),
    }
    document["properties"]["auth"]["properties"]["issuers"]["items"] = _without_words(issuer)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _without_words(schema: Any) -> Any:
    """Return a schema without its titles and descriptions, and without defaults, which the program fills in."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        kept = {key: _without_words(part) for key, part in schema.items() if key not in _WORDS}
        if properties is not None:
            kept["properties"] = {name: _without_words(part) for name, part in properties.items()}
        return kept
    return [_without_words(part) for part in schema] if isinstance(schema, list) else schema


def section_schema(section: type[Section]) -> dict[str, Any]:
    """Return the schema of one section of the settings; the defaults are the program's own, not the chart's."""
    fields = {
        name: {"description": setting.doc}
        | {key: value for key, value in setting.schema.items() if key not in {"default", "title"}}
        for name, setting in section.settings.items()
    }
    for field in fields.values():
        if "off" in field.get("enum", ()):  # YAML reads a bare one as false
            field["enum"] = [*field["enum"], False]
            del field["type"]
    return {"type": "object", "additionalProperties": False, "properties": fields}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One line of the table of values: a dotted path, its default, the comment above it."""

    path: str
    default: Any
    doc: str


def described_values() -> Iterator[Value]:
    """Yield the values of values.yaml with their comments, in order; maps are taken apart while they have comments."""
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    document = yaml.safe_load("\n".join(lines))
    skipped_below: int | None = None
    for line in lines:
        if match := re.match(r"( *)# ?(.*)", line):
            comment.append(match[2])
            continue
        match = re.match(r"( *)([A-Za-z][\w.-]*):(.*)", line)
        if match is None:
            comment = []
            continue
        indent = len(match[1])
        if skipped_below is not None and indent > skipped_below:
            continue
        skipped_below = None
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, match[2]))
        default = document
        for _, key in stack:
            default = default[key]
        doc, comment = " ".join(comment), []
        if isinstance(default, dict) and default and _is_branch(default):
            if doc:
                yield Value(path=".".join(key for _, key in stack), default=None, doc=doc)
            continue
        if isinstance(default, dict | list) and default:
            skipped_below = indent
        yield Value(path=".".join(key for _, key in stack), default=default, doc=doc)


_WHOLE = ("requests", "runAsNonRoot", "allowPrivilegeEscalation", "rollingUpdate", "grafana_dashboard")
"""Keys of maps that are shown as one value."""


_WITH_PODS = frozenset({"server", "operator", "builder", "jobs", "postgres.trial"})
"""Components that take the names of `pods` again."""


def _is_branch(value: dict[str, Any]) -> bool:
    """Tell whether a map is taken apart: not those that are Kubernetes' own objects."""
    return not set(_WHOLE) & set(value)


def readme() -> str:
    """Return the chart's README.md with the table of its values written anew."""
    parts = ["\n| value | default | meaning |\n|---|---|---|\n"]
    of_all_pods = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["pods"]
    for value in described_values():
        parent, _, name = value.path.rpartition(".")
        if parent in _WITH_PODS and name in of_all_pods and not value.doc:
            continue  # the line about `pods` says that they take the same names
        if value.default is None and value.doc and _is_section(value.path):
            parts.append(f"| **`{value.path}`** | | {_cell(value.doc)} |\n")
        else:
            default = json.dumps(value.default, ensure_ascii=False)
            parts.append(f"| `{value.path}` | `{_cell(default)}` | {_cell(value.doc)} |\n")
    return generated.below_mark(CHART / "README.md", "".join(parts))


def _is_section(path: str) -> bool:
    value: Any = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for key in path.split("."):
        value = value[key]
    return isinstance(value, dict)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


GENERATED: dict[str, Callable[[], str]] = {
    "templates/crds/myriarebuilds.yaml": crd_template,
    "values.schema.json": schema,
    "README.md": readme,
}


if __name__ == "__main__":
    raise SystemExit(generated.write_or_check({CHART / name: written for name, written in GENERATED.items()}))
