"""What the tests of models share: a scripted provider, and settings that lead to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from myria.settings import LlmSettings
from tests.llm.provider import Provider, Script

KEY = "sk-or-v1-Zq8!secret/key+7wQ9"
"""A credential that must never be seen anywhere."""

Starting = Callable[[Script], Provider]
Configuring = Callable[..., LlmSettings]


@pytest.fixture
def provide() -> Iterator[Starting]:
    """Start providers: `provide(script)`; they end with the test."""
    started: list[Provider] = []

    def start(script: Script) -> Provider:
        started.append(Provider(script))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configuring:
    """Return settings that lead to a provider: `configured(provider, retries=0)`."""
    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    template = tmp_path / "template.json"
    template.write_bytes(
        orjson.dumps(
            {
                "model": "scripted/model",
                "temperature": 0,
                "provider": {"sort": "throughput"},
                "headers": {"Authorization": "Bearer ${SCRIPTED_KEY}", "X-Title": "myria"},
            }
        )
    )

    def settings(provider: Provider | str, **fields: Any) -> LlmSettings:
        url = provider if isinstance(provider, str) else provider.url
        quick: dict[str, Any] = {"call_timeout_s": 60.0, "walk_deadline_s": 25.0, "retry_base_s": 0.01, "retries": 1}
        return LlmSettings(template=str(template), base_url=url, **{**quick, **fields})

    return settings
