"""A real Prometheus in the cluster that scrapes what the chart's monitors select.

The Prometheus Operator's part is played here: a monitor's selectors and port names, applied to the Services, Endpoints
and pods in the API server, give the targets. (Debian's Prometheus is built without discovery on Kubernetes.)
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import yaml

from tests.install.isolation import IsolatedNode
from tests.install.network import GATEWAY
from tests.kubernetes.api import Json
from tests.monitoring.rules import FILES
from tests.monitoring.scraping import Scraper
from tests.support.patience import PATIENCE_S
from tests.support.processes import Spawner, wait_until

PORT = 9090


def scrape_configs(monitor: Json, node: IsolatedNode) -> Iterator[Json]:
    """Yield what Prometheus reads in place of a monitor."""
    by_service = monitor["kind"] == "ServiceMonitor"
    labels = ",".join(f"{key}={value}" for key, value in monitor["spec"]["selector"]["matchLabels"].items())
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == [node.namespace]
    for number, endpoint in enumerate(monitor["spec"]["endpoints" if by_service else "podMetricsEndpoints"]):
        find = _behind_services if by_service else _of_pods
        yield {
            "job_name": f"{monitor['kind']}/{monitor['metadata']['name']}/{number}",
            "metrics_path": endpoint["path"],
            "static_configs": [
                {"targets": [target], "labels": {"namespace": node.namespace, "pod": pod, "job": job}}
                for target, pod, job in find(node, labels, endpoint["port"])
            ],
        }


def _behind_services(node: IsolatedNode, labels: str, port: str) -> Iterator[tuple[str, str, str]]:
    for service in node.api.objects("Service", node.namespace, labels=labels):
        name = service["metadata"]["name"]
        for subset in node.api.get("Endpoints", name, node.namespace).get("subsets") or ():
            for number in (one["port"] for one in subset["ports"] if one["name"] == port):
                for address in subset.get("addresses") or ():
                    yield f"{address['ip']}:{number}", address["targetRef"]["name"], name


def _of_pods(node: IsolatedNode, labels: str, port: str) -> Iterator[tuple[str, str, str]]:
    for pod in node.api.objects("Pod", node.namespace, labels=labels):
        for container in pod["spec"]["containers"]:
            for one in container.get("ports", []):
                if one.get("name") == port:
                    yield f"{pod['status']['podIP']}:{one['containerPort']}", pod["metadata"]["name"], node.namespace


class InCluster(Scraper):
    """Prometheus on the node, with the project's rules and these monitors; its end is the spawner's."""

    def __init__(
        self, programs: Path, folder: Path, spawn: Spawner, node: IsolatedNode, monitors: Sequence[Json]
    ) -> None:
        self._node = node
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "prometheus.yaml"
        configs = [one for monitor in monitors for one in scrape_configs(monitor, node)]
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        content = {"global": every, "rule_files": [str(file) for file in FILES], "scrape_configs": configs}
        config.write_text(yaml.safe_dump(content), encoding="utf-8")
        with node.runtime.network.inside():
            self.process = spawn(
                programs / "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={GATEWAY}:{PORT}",
            )
        host, port = node.runtime.network.reach((GATEWAY, PORT))
        self.url = f"http://{host}:{port}"
        self._client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, verify=False)
        wait_until(self._is_ready, 30.0, "Prometheus")

    def healthy(self) -> dict[str, int]:
        """Return how many targets of each monitor answer their scrapes."""
        found: dict[str, int] = {}
        for one in self.get("targets")["activeTargets"]:
            found[one["scrapePool"]] = found.get(one["scrapePool"], 0) + (one["health"] == "up")
        return found

    def exposed(self) -> set[str]:
        """Return the names that the targets describe, also those that have no series yet."""
        names = set()
        for url in {one["scrapeUrl"] for one in self.get("targets")["activeTargets"]}:
            where = urlsplit(url)
            assert where.hostname is not None
            assert where.port is not None
            connection = http.client.HTTPConnection(where.hostname, where.port)
            connection.sock = self._node.runtime.network.connect(where.hostname, where.port, 10.0)
            connection.request("GET", where.path)
            text = connection.getresponse().read().decode()
            connection.close()
            for _, _, name, kind in (line.split() for line in text.splitlines() if line.startswith("# TYPE ")):
                names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
        return names
