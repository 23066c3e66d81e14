"""Which model computes vectors, as the settings say; without one none of their code is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping

from myria.embeddings.model import EmbeddingModel
from myria.settings import Settings
from myria.vault import Secrets, opened_secrets


def configured(
    settings: Settings, environ: Mapping[str, str] | None = None, *, secrets: Secrets | None = None
) -> EmbeddingModel | None:
    """Return the configured model, None where there is none.

    Args:
        secrets: what the template may name; left out, those of the settings.

    Raises:
        ConfigurationError: the packages of the local model are not installed, or the template cannot be used.
    """
    chosen = settings.embeddings.model
    if chosen == "off":
        return None
    if chosen == "local":
        from myria.embeddings.local import LocalModel  # noqa: PLC0415 - an extra, and slow to import

        return LocalModel.installed()
    from myria.embeddings.endpoint import EndpointModel  # noqa: PLC0415

    secrets = opened_secrets(settings.secrets, environ) if secrets is None else secrets
    return EndpointModel.configured(settings.embeddings, os.environ if environ is None else environ, secrets)
