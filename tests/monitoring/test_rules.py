"""The alert rules: what promtool says of them, a case that fires and one that stays silent for each, and their form."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from myria import errors
from tests.monitoring.rules import CASES, FILES, alerts, rules


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


def promtool(folder: Path, *arguments: str | Path) -> None:
    done = subprocess.run([folder / "promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES, ids=names(FILES))
def test_prometheus_accepts_the_rules(file: Path, prometheus: Path) -> None:
    """Every expression and every template of a file parses, and no rule stands there twice."""
    promtool(prometheus, "check", "rules", file)


@pytest.mark.parametrize("file", CASES, ids=names(CASES))
def test_they_fire_when_they_should_and_only_then(file: Path, prometheus: Path) -> None:
    """Each case's alerts are exactly those it expects, words included."""
    promtool(prometheus, "test", "rules", file)


def test_each_alert_has_a_case_that_fires_and_one_that_stays_silent() -> None:
    """Of each alert and severity one case expects it, and of each alert one case expects nothing, ever."""
    fires, silent = set(), set()
    for file in CASES:
        for case in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]:
            looks = case["alert_rule_test"]
            fired = {
                (look["alertname"], found["exp_labels"]["severity"]) for look in looks for found in look["exp_alerts"]
            }
            fires |= fired
            silent |= {look["alertname"] for look in looks} - {name for name, _ in fired}
    assert fires == {(rule["alert"], rule["labels"]["severity"]) for rule in alerts()}
    assert silent == {rule["alert"] for rule in alerts()}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_tells_a_person_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    """It has a severity, a summary that fits a phone's screen, a description and its own page."""
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    shown = re.sub(r"\{\{ with .*?\{\{ end \}\}", " in production", rule["annotations"]["summary"])
    assert len(re.sub(r"\{\{.*?\}\}", "query_event_nodes", shown)) <= 100
    assert rule["annotations"]["runbook_url"] == f"__RUNBOOK_BASE__/{rule['alert']}.md"


def test_service_errors_are_those_that_answer_with_500_or_more() -> None:
    """The rules' list of outcomes has every code that is not the caller's doing, and none that is."""
    codes = {leaf.code: leaf.http_status for leaf in leaves(errors.MyriaError)}
    lists = [found for rule in rules() for found in re.findall(r'outcome=~"([^"]*)"', str(rule["expr"]))]
    assert len(lists) == 2
    for one in lists:
        assert {code for code, status in codes.items() if status >= 500} <= set(one.split("|"))
        assert not {code for code, status in codes.items() if status < 500} & set(one.split("|"))


def leaves(error: type[errors.MyriaError]) -> Iterator[type[errors.MyriaError]]:
    below = error.__subclasses__()
    if not below:
        yield error
    for one in below:
        yield from leaves(one)
