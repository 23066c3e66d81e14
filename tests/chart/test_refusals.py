"""What the chart refuses, with a sentence that names the value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import helm_python as helm
import pytest
import yaml

from tests.chart.rendering import CHART, render

OPEN = {"auth": {"mode": "none"}}

WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    # By the schema: a wrong name, type, or range.
    ({"replicas": 3}, r"additional properties 'replicas' not allowed"),
    ({"server": {"replica": 3}}, r"at '/server'.*'replica'"),
    ({"server": {"replicas": "three"}}, r"at '/server/replicas'.*want null or integer"),
    ({"server": {"service": {"type": "LoadBalancer"}}}, r"at '/server/service/type'.*'ClusterIP'"),
    ({"server": {"containerPort": 70000}}, r"at '/server/containerPort'.*65,?535"),
    ({"postgres": {"mode": "sqlite"}}, r"at '/postgres/mode'.*'external', 'cnpg', 'trial'"),
    ({"postgres": {"dsn": "mysql://db"}}, r"at '/postgres/dsn'"),
    ({"postgres": {"secret": {"keys": {"server": "a b"}}}}, r"at '/postgres/secret/keys/server'"),
    ({"postgres": {"cnpg": {"instances": 0}}}, r"at '/postgres/cnpg/instances'.*minimum"),
    ({"postgres": {"trial": {"storage": {"size": "many"}}}}, r"at '/postgres/trial/storage/size'"),
    ({"image": {"digest": "latest"}}, r"at '/image/digest'"),
    ({"image": {"pullPolicy": "Sometimes"}}, r"at '/image/pullPolicy'"),
    ({"settings": {"builder": {"inactivity_timeout": 5}}}, r"at '/settings/builder'.*'inactivity_timeout'"),
    ({"settings": {"builder": {"processes": 0}}}, r"at '/settings/builder/processes'.*minimum"),
    ({"settings": {"mcp": {"profiles": ["root"]}}}, r"at '/settings/mcp/profiles/0'"),
    ({"settings": {"serving": {}}}, r"at '/settings'.*'serving'"),
    ({"pods": {"extraEnv": [{"value": "x"}]}}, r"at '/pods/extraEnv/0'.*'name'"),
    ({"pods": {"labels": {"a": 1}}}, r"at '/pods/labels/a'.*want string"),
    ({"crds": {"enabled": "yes"}}, r"at '/crds/enabled'.*want boolean"),
    ({"monitoring": {"podMonitor": {"interval": "soon"}}}, r"at '/monitoring/podMonitor/interval'"),
    ({"ingress": {"hosts": [{"name": "a"}]}}, r"at '/ingress/hosts/0'"),
    # By the chart: values that contradict each other.
    (OPEN, r"auth\.mode is none.* set auth\.mode to keys; or.* set server\.authenticatedInFront to true; or.* set "),
    (OPEN, r"if everybody in the cluster may, set server\.allowUnauthenticated to true"),
    (
        {**OPEN, "server": {"allowUnauthenticated": True}, "ingress": {"enabled": True, "hosts": [{"host": "a"}]}},
        r"set auth\.mode to keys; or let something in front authenticate, and set server\.authenticatedInFront to true",
    ),
    ({"auth": {"mode": "none", "existingSecret": "a"}}, r"auth\.existingSecret holds a key, but auth\.mode is none"),
    (
        {"auth": {"existingSecret": "a", "adminKey": {"secretName": "b"}}},
        r"auth\.existingSecret and auth\.adminKey\.secretName both say",
    ),
    ({"rbac": {"create": False}}, r"auth\.mode keys makes .* rbac\.create to true, bring .* with auth\.existingSecret"),
    ({"auth": {"mode": "oauth"}}, r"at '/auth/mode'.*'keys', 'none'"),
    ({"auth": {"adminKey": {"participants": []}}}, r"at '/auth/adminKey/participants'"),
    ({"auth": {"server": True}}, r"auth\.server and auth\.issuers need auth\.publicUrl"),
    ({**OPEN, "auth": {"mode": "none", "server": True}}, r"auth\.server .* but auth\.mode is none"),
    ({"auth": {"publicUrl": "https://a.example/mcp"}}, r"at '/auth/publicUrl'"),
    ({"auth": {"publicUrl": "http://a.example"}}, r"at '/auth/publicUrl'"),
    ({"auth": {"issuers": [{"name": "a"}]}}, r"at '/auth/issuers/0'.*missing properties.*'issuer'"),
    ({"auth": {"issuers": [{"algorithm": []}]}}, r"at '/auth/issuers/0'.*'algorithm'"),
    (
        {"settings": {"auth": {"public_url": "https://a.example"}}},
        r"settings\.auth\.public_url is decided by the chart: use auth\.publicUrl",
    ),
    ({"settings": {"mcp": {"tls_key": "a"}}}, r"settings\.mcp\.tls_key is decided by the chart: use server\.tls"),
    ({"settings": {"auth": {"mode": "none"}}}, r"settings\.auth\.mode is decided by the chart: use auth\.mode"),
    ({"ingress": {"enabled": True}}, r"ingress\.enabled needs ingress\.hosts"),
    ({"httpRoute": {"enabled": True}}, r"httpRoute\.enabled needs httpRoute\.parentRefs"),
    ({"httpRoute": {"enabled": True}}, r"httpRoute\.enabled needs httpRoute\.hostnames"),
    ({"autoscaling": {"enabled": True, "minReplicas": 9}}, r"autoscaling\.minReplicas \(9\) is greater than"),
    ({"podDisruptionBudget": {"minAvailable": 1}}, r"one of minAvailable and maxUnavailable"),
    (
        {"podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": None}},
        r"podDisruptionBudget\.minAvailable \(2\) lets none of 2",
    ),
    (
        {"monitoring": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
        r"monitoring\.serviceMonitor\.enabled and monitoring\.podMonitor\.enabled would scrape",
    ),
    ({"postgres": {"mode": "trial", "dsn": "postgresql://a@b/c"}}, r"postgres\.dsn names .* postgres\.mode is trial"),
    (
        {"postgres": {"mode": "cnpg", "secret": {"name": "a"}}},
        r"secret\.name names .* postgres\.mode is cnpg",
    ),
    ({"postgres": {"dsn": "postgresql://a@b/c", "secret": {"name": "a"}}}, r"postgres\.dsn and postgres\.secret\.name"),
    ({"postgres": {"mode": "trial"}, "rbac": {"create": False}}, r"postgres\.mode trial .* set rbac\.create to true"),
    (
        {"operator": {"serviceAccount": {"name": "a"}}, "builder": {"serviceAccount": {"name": "a"}}},
        r"share the ServiceAccount a",
    ),
    ({"operator": {"probePort": 8081}}, r"operator\.probePort and operator\.metricsPort are both 8081"),
    ({"settings": {"mcp": {"port": 9000}}}, r"settings\.mcp\.port is decided by the chart: use server\.containerPort"),
    ({"settings": {"postgres": {"dsn": "postgresql://a@b/c"}}}, r"settings\.postgres\.dsn is decided by the chart"),
)


@pytest.mark.parametrize(("values", "sentence"), WRONG, ids=lambda one: None if isinstance(one, dict) else one[:40])
def test_a_wrong_value_is_named(values: dict[str, Any], sentence: str) -> None:
    """Rendering fails before anything is installed, and the message says which value, and why."""
    with pytest.raises(helm.HelmError) as refused:
        render(values)
    message = str(refused.value)
    assert re.search(sentence, message, re.DOTALL), message


@pytest.mark.parametrize("statement", ["authenticatedInFront", "allowUnauthenticated"])
def test_either_statement_allows_to_ask_for_no_keys(statement: str) -> None:
    """auth.mode none is taken with one of the two; with keys neither is needed, for an Ingress or a route."""
    render({**OPEN, "server": {statement: True}})
    render({"ingress": {"enabled": True, "hosts": [{"host": "a"}]}})
    render({"httpRoute": {"enabled": True, "hostnames": ["a"], "parentRefs": [{"name": "gateway"}]}})


def test_all_contradictions_are_told_at_once() -> None:
    """Whoever has three things to mend hears of three."""
    with pytest.raises(helm.HelmError) as refused:
        render({**OPEN, "httpRoute": {"enabled": True}})
    assert len(re.findall(r"^- ", str(refused.value), re.MULTILINE)) == 4


def _settable(values: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield (*at, name)
        if isinstance(value, dict):
            yield from _settable(value, (*at, name))


def test_a_value_set_to_null_is_left_out_or_refused_in_words() -> None:
    """Helm takes null for `leave the default out`: nothing is rendered or said of it as a pointer or as <nil>."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    wrong = {}
    for path in _settable(defaults):
        changed: dict[str, Any] = {}
        place = changed
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = None
        try:
            said = "".join(render(changed).files.values())
        except helm.HelmError as error:
            said = str(error)
        if "<nil>" in said or "nil pointer" in said:
            wrong[path] = said
    assert wrong == {}
