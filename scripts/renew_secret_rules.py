"""Write core/myria/log/redaction/secret_rules.json from a copy of gitleaks' rules.

    git clone --depth 1 https://github.com/gitleaks/gitleaks
    .venv/bin/python scripts/renew_secret_rules.py gitleaks

Of each rule it keeps the expression, the keywords, the group that holds the secret and, where the shape alone proves
nothing, the entropy and what is allowed. Rules for files of certain names are left out: a memory has no file names.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import orjson

TARGET = Path(__file__).parent.parent / "core/myria/log/redaction/secret_rules.json"

_BY_CONTEXT = ("(?i)[\\w.-]{0,50}?", "(?i)\\b[\\w.-]{0,50}?")
_SHAPELESS = {"generic-api-key", "sourcegraph-access-token", "curl-auth-header", "curl-auth-user"}


def _allowed(rule: dict[str, Any]) -> list[dict[str, Any]]:
    kept = []
    for item in rule.get("allowlists", []):
        if item.get("condition") == "AND" or not (item.get("regexes") or item.get("stopwords")):
            continue  # these ask for a file's path
        kept.append(
            {
                "target": item.get("regexTarget", "secret"),
                "regexes": item.get("regexes", []),
                "stopwords": item.get("stopwords", []),
            }
        )
    return kept


def main(clone: Path) -> None:
    """Read the rules of a clone and write ours."""
    document = tomllib.loads((clone / "config/gitleaks.toml").read_text(encoding="utf-8"))
    commit = subprocess.run(
        ["git", "-C", str(clone), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    rules = []
    for rule in document["rules"]:
        if "regex" not in rule or "path" in rule:
            continue
        shapeless = rule["id"] in _SHAPELESS or rule["regex"].startswith(_BY_CONTEXT)
        rules.append(
            {
                "id": rule["id"],
                "regex": rule["regex"],
                "keywords": sorted({word.lower() for word in rule["keywords"]}),
                "group": rule.get("secretGroup", 0),
                "entropy": rule.get("entropy", 0.0) if shapeless else 0.0,
                "allowed": _allowed(rule) if shapeless else [],
            }
        )
    everywhere = document["allowlist"]
    kept = {
        "source": f"https://github.com/gitleaks/gitleaks/blob/{commit}/config/gitleaks.toml",
        "licence": (clone / "LICENSE").read_text(encoding="utf-8"),
        "rules": rules,
        "allowed": {
            "target": "secret",
            "regexes": [item for item in everywhere["regexes"] if not item.startswith("^/")],
            "stopwords": everywhere["stopwords"],
        },
    }
    TARGET.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
