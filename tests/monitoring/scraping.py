"""A real Prometheus on loopback that scrapes what a test started, with the project's alert rules loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.monitoring.rules import FILES
from tests.support.patience import PATIENCE_S
from tests.support.processes import Spawned, Spawner, free_port, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One process to scrape: the port of its /metrics, and the labels that the Prometheus Operator would add."""

    port: int
    job: str
    pod: str
    labels: Mapping[str, str] = field(default_factory=dict)


class Scraper:
    """Prometheus, started with the object; its end is the spawner's."""

    def __init__(
        self, programs: Path, folder: Path, spawn: Spawner, targets: Sequence[Target], *, every: str = "1s"
    ) -> None:
        self.targets = targets
        self.url = f"http://127.0.0.1:{free_port()}"
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "prometheus.yaml"
        jobs = [
            {
                "job_name": f"{target.job}/{target.pod}",
                "static_configs": [{"targets": [f"127.0.0.1:{target.port}"]}],
                "relabel_configs": [
                    {"target_label": name, "replacement": value}
                    for name, value in {
                        "namespace": "myria",
                        "job": target.job,
                        "pod": target.pod,
                        **target.labels,
                    }.items()
                ],
            }
            for target in targets
        ]
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
                    "rule_files": [str(file) for file in FILES],
                    "scrape_configs": jobs,
                }
            ),
            encoding="utf-8",
        )
        self.process: Spawned = spawn(
            programs / "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        )
        self._client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, verify=False)
        wait_until(self._is_ready, 30.0, "Prometheus")

    def _is_ready(self) -> bool:
        assert self.process.process.poll() is None, self.process.output()
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **asked: str) -> Any:
        """Return what its API answers."""
        answer = self._client.get(f"/api/v1/{path}", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return the series of a query now."""
        return [(one["metric"], float(one["value"][1])) for one in self.get("query", query=query)["result"]]

    def wait_for(self, query: str, timeout_s: float = 180.0) -> None:
        """Return once a query has a series; the operator's looks at the memory may be a minute apart."""
        wait_until(lambda: self.ask(query), timeout_s, query)

    def series(self) -> dict[str, set[str]]:
        """Return every metric it has seen, with the labels of its series."""
        found: dict[str, set[str]] = {}
        for one in self.get("series", **{"match[]": '{__name__=~".+"}'}):
            found.setdefault(one.pop("__name__"), set()).update(one)
        return found

    def exposed(self) -> set[str]:
        """Return the names that the targets describe, also those that have no series yet."""
        names = set()
        for target in self.targets:
            text = httpx.get(f"http://127.0.0.1:{target.port}/metrics", timeout=PATIENCE_S, verify=False).text
            for line in text.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split()
                    names |= (
                        {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
                    )
        return names
