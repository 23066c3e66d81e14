"""What is generated is current, and the chart agrees with the sources it repeats."""

from __future__ import annotations

import json
import subprocess
import sys

import yaml

from tests.chart.rendering import CHART, NAMESPACE, RELEASE, ROOT, render, rendered
from tests.kubernetes import manifests

DEFINITION = "myriarebuilds.myria.dev"


def test_the_generated_files_are_current() -> None:
    """The definition's template, the schema of `settings` and README.md are what `make docs` would write."""
    script = [sys.executable, str(ROOT / "scripts" / "generate_chart.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_definition_is_the_one_in_crds() -> None:
    """The rendered definition is crds/myriarebuild.yaml, beside the release's labels and annotations."""
    shipped, installed = manifests.definition(), rendered("default").one("CustomResourceDefinition", DEFINITION)
    assert installed["spec"] == shipped["spec"]
    assert installed["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert rendered("everything").one("CustomResourceDefinition", DEFINITION)["metadata"]["annotations"] == {
        "example.org/owner": "agents"
    }
    for name in ("second-installation", "no-crds"):
        assert rendered(name).of("CustomResourceDefinition") == []


def test_the_roles_are_those_of_the_examples() -> None:
    """The chart grants operator, builds and people what the manifests for people do, no more and no less."""
    examples = [*manifests.rbac(), *manifests.people_roles()]
    names = {"myria-operator": f"{RELEASE}-myria-operator", "myria-builder": f"{RELEASE}-myria-builder"}
    names |= {f"myria-{kind}": f"{RELEASE}-myria-{NAMESPACE}-{kind}" for kind in ("view", "edit")}
    for example in examples:
        if example["kind"] in ("Role", "ClusterRole"):
            ours = rendered("default").one(example["kind"], names[example["metadata"]["name"]])
            expected = [
                {**rule, "resourceNames": [names[name] for name in rule["resourceNames"]]}
                if "resourceNames" in rule
                else rule
                for rule in example["rules"]
            ]
            assert ours["rules"] == expected


def test_every_value_has_a_place_in_the_schema_and_the_other_way_round() -> None:
    """values.yaml and values.schema.json name the same things, so none is forgotten in one of them."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    def compared(part: object, described: dict[str, object], path: str) -> None:
        properties = described.get("properties")
        if not isinstance(properties, dict) or not isinstance(part, dict) or path in (".settings", ".global"):
            return
        expected = set(properties) - ({"global", "enabled"} if not path else set())
        if "$ref" not in described:
            assert set(part) == expected, path
        for key, one in part.items():
            compared(one, properties[key], f"{path}.{key}")

    compared(values, schema, "")


def test_long_names_are_cut() -> None:
    """The longest release name that Helm allows still gives names that Kubernetes takes."""
    long = render({"postgres": {"mode": "trial"}, "operator": {"enabled": False}}, name="a" * 53, revision=12345)
    for one in long.objects:
        assert len(one["metadata"]["name"]) <= (52 if one["kind"] == "StatefulSet" else 63), one["metadata"]["name"]
