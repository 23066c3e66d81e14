"""docs/moving-in.md, for those who hold a configuration of the founding specification (section 22.1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from myria.errors import ConfigurationError
from myria.settings import Settings
from tests.docs.test_pages import blocks, text_of

SECTION = text_of("docs/moving-in.md").partition("\n## From the founding specification\n")[2]

FOUNDING = """
service: {name: myria, log_level: info, log_file: ./myria.log}
mcp: {transport: stdio, network: {enabled: false, listen_addr: ""}}
postgres:
  dsn: postgres://myria:secret@127.0.0.1:5432/myria?sslmode=disable
  schema: myria
  max_open_conns: 20
  max_idle_conns: 5
  migrate_on_start: false
llm:
  provider: openrouter
  request_template_path: ./config/openrouter-llm.template.json
  timeout: 30s
  max_tool_rounds: 8
  temperature: 1.0
  top_p: 0.95
  structured_tool_calling_required: true
builder: {inactivity_timeout: 30s, max_unindexed_events: 100, auto_publish: true, allow_manual_trigger: true}
"""
"""The shape that the specification gives."""


def keys(document: dict[str, object], above: str = "") -> list[str]:
    """Return the keys of a configuration as the page writes them."""
    found = []
    for name, value in document.items():
        found += keys(value, f"{above}{name}: ") if isinstance(value, dict) else [f"{above}{name}"]
    return found


def test_each_founding_key_has_a_line() -> None:
    """Once, and no line is of a key that the specification does not have."""
    assert sorted(re.findall(r"^- `([a-z_: ]+)`: ", SECTION, re.MULTILINE)) == sorted(keys(yaml.safe_load(FOUNDING)))


def test_the_example_is_a_file_of_myria(tmp_path: Path) -> None:
    """What the page gives for the founding example loads, with its values."""
    (example,) = blocks(SECTION, "yaml")
    file = tmp_path / "myria.yaml"
    file.write_text(example, encoding="utf-8")
    settings = Settings.load(file, {})
    assert (settings.log.file, settings.postgres.pool_size, settings.llm.call_timeout_s) == ("./myria.log", 20, 30)
    assert (settings.builder.inactivity_timeout_s, settings.builder.max_unindexed_events) == (30, 100)


def test_a_founding_file_is_refused_by_name(tmp_path: Path) -> None:
    """Nothing of it is taken for something else: the first key that Myria does not have is named."""
    file = tmp_path / "myria.yaml"
    file.write_text(FOUNDING, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="log_file"):
        Settings.load(file, {})
