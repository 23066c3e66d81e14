"""What watches an installation: monitors, alerts and dashboards."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    Json,
    render,
    rendered,
    values_of,
)


def test_monitors_scrape_ports_that_exist() -> None:
    """Both planes are scraped once, by Services or by pods; alerts and dashboards come with them."""
    services = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in rendered("everything").of("Service")
    }
    for monitor in rendered("everything").of("ServiceMonitor"):
        component = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in services[component]["spec"]["ports"]}
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
    for monitor in rendered("monitoring").of("PodMonitor"):
        pod = rendered("monitoring").pod(monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"])
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for one in pod.containers for port in one.get("ports", ())}
    assert len(rendered("everything").of("ServiceMonitor")) == len(rendered("monitoring").of("PodMonitor")) == 2


def test_alerts_keep_their_templates_and_get_their_runbooks() -> None:
    """What stands between double braces is Prometheus' own; the runbooks' place is the value; labels are added."""
    files = sorted((CHART / "files" / "alerts").glob("*.yaml"))
    rules = rendered("everything").of("PrometheusRule")
    assert len(rules) == len(files) > 0
    groups = [group for path in files for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    shipped = [rule for group in groups for rule in group["rules"]]
    ours = [rule for one in rules for group in one["spec"]["groups"] for rule in group["rules"]]
    assert len(ours) == len(shipped)
    for rule, installed in zip(shipped, ours, strict=True):
        assert installed["expr"].strip() == str(rule["expr"]).strip()
        if "alert" not in rule:
            assert installed == {**rule, "expr": installed["expr"]}
            continue
        assert installed["labels"] == {**rule.get("labels", {}), "team": "agents"}
        for key, text in rule["annotations"].items():
            filled = text.replace("__RUNBOOK_BASE__", "https://docs.example.org/runbooks")
            assert installed["annotations"][key] == filled
    assert "{{" in json.dumps(ours)


def test_without_an_operator_nobody_is_told_that_it_does_nothing() -> None:
    """The rules about the operator are left out with it, and only those."""
    with_it, without = (
        {
            rule["alert"]
            for one in render({"monitoring": {"prometheusRule": {"enabled": True}}, **more}).of("PrometheusRule")
            for group in one["spec"]["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
        for more in (values_of("default"), {**values_of("default"), **values_of("no-operator")})
    )
    assert with_it - without == {"MyriaOperatorNotProgressing"}
    assert without < with_it


def test_dashboards_are_the_files() -> None:
    """Each dashboard is one ConfigMap, byte for byte, with the label that Grafana's sidecar looks for."""
    files = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "files" / "dashboards").glob("*.json")}
    found = {
        name: text
        for one in rendered("monitoring").of("ConfigMap")
        for name, text in one["data"].items()
        if one["metadata"]["labels"].get("grafana_dashboard") == "1"
    }
    assert {name: json.loads(text) for name, text in found.items()} == {
        name: json.loads(text) for name, text in files.items()
    }
    assert files


@pytest.mark.parametrize("kind", ["serviceMonitor", "podMonitor"])
def test_monitors_behind_a_policy_without_scrapers_warn(kind: str) -> None:
    """Prometheus could not reach what it is told to scrape; once its pods are named, it can."""
    values: Json = {"networkPolicy": {"enabled": True}, "monitoring": {kind: {"enabled": True}}}
    warning = "name its pods in networkPolicy.scrapers"
    assert warning in render(values).notes
    values["networkPolicy"]["scrapers"] = [{"namespaceSelector": {}}]
    assert warning not in render(values).notes
