"""What rules, dashboards and runbooks ask of Prometheus, compared with what it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.monitoring.promql import groupings, selectors
from tests.monitoring.rules import rules
from tests.monitoring.scraping import Scraper
from tests.monitoring.test_dashboards import NAMES, load, queries
from tests.monitoring.test_runbooks import blocks

SET_BY_SCRAPING = {"namespace", "job", "pod", "instance", "le"}
OPERATOR = re.compile(r"myria_operator_\w+")


def asked() -> list[str]:
    """Return every query of rules, dashboards and runbooks."""
    return [
        *(rule["expr"] for rule in rules()),
        *(query for name in NAMES for query in queries(load(name))),
        *(block for _, block in blocks("promql")),
    ]


def missing(scraper: Scraper, wanted: Callable[[str], bool]) -> Iterator[str]:
    """Yield what no scrape has: metrics, and labels that queries ask of them."""
    seen = scraper.series()
    exposed = scraper.exposed() | {rule["record"] for rule in rules() if "record" in rule}
    for query in asked():
        named = [(name, labels) for name, labels in selectors(query) if wanted(name)]
        for name, labels in named:
            if name not in seen and name not in exposed:
                yield f"{name} is nowhere: {query}"
            elif name in seen:
                for label in labels - seen[name] - SET_BY_SCRAPING:
                    yield f"{name} has no label {label}: {query}"
        known = SET_BY_SCRAPING.union(*(seen.get(name, set()) for name, _ in selectors(query)))
        if named and all(name in seen for name, _ in selectors(query)):
            for label in groupings(query) - known:
                yield f"nothing has the label {label}: {query}"
