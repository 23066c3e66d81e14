"""The example templates load."""

from __future__ import annotations

from pathlib import Path

import pytest

from myria.llm.failures import Kind, advice
from myria.llm.template import RequestTemplate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "llm").glob("*.json"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_a_sound_template(path: Path, tmp_path: Path) -> None:
    """Every example is taken as it stands, given its key."""
    key = tmp_path / "openrouter-api-key"
    key.write_text("sk-or-v1-0123456789\n")
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("/run/secrets", str(tmp_path)))

    template = RequestTemplate.load(copy, {"OPENROUTER_API_KEY": "sk-or-v1-0123456789"})

    if "Authorization" in template.headers:
        assert template.headers["Authorization"].reveal() == "Bearer sk-or-v1-0123456789"


def test_every_reason_is_documented() -> None:
    """docs/llm.md names each way in which an answer can be degraded."""
    text = (ROOT / "docs" / "llm.md").read_text(encoding="utf-8")
    assert not [kind.value for kind in Kind if f"`{kind.value}`" not in text]


def test_each_way_says_what_to_do() -> None:
    """The note of a degraded answer names the failure, what was done instead and a next step, for every kind."""
    notes = {kind: advice(kind.value) for kind in Kind}
    assert all(f"({kind})" in note and "words and structure found" in note for kind, note in notes.items())
    assert all(note.partition("until then: ")[2] for note in notes.values())
