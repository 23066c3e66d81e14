"""What the tests need to know of PromQL: which metrics a query names, and which labels it asks of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SELECTOR = re.compile(r"\b(?P<name>(?:myria|process)_\w+|\w+:myria_\w+:\w+)(?P<matchers>\{[^}]*\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
_RANGES = {"$__rate_interval": "5m", "$__interval": "1m"}


def selectors(query: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each metric with the labels that its matchers name."""
    for found in _SELECTOR.finditer(query):
        matchers = re.sub(r'"[^"]*"', '""', found["matchers"] or "")
        yield found["name"], frozenset(_MATCHER.findall(matchers))


def groupings(query: str) -> frozenset[str]:
    """Return the labels by which a query groups or joins."""
    return frozenset(label.strip() for found in _GROUPING.findall(query) for label in found.split(",") if label.strip())


def filled(query: str, **variables: str) -> str:
    """Return a dashboard's query with its variables filled in; those that are not given match everything."""
    for name, value in {"namespace": ".*", "tenant": ".*", **_RANGES, **variables}.items():
        query = query.replace(name if name.startswith("$") else f"${name}", value)
    return query
