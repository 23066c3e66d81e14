"""Second looks of one process: within a request's time or not at all, and kept for the pages of its answer."""

from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from myria.access.vault import Secrets, opened_secrets
from myria.errors import ConfigurationError, ModelFailed
from myria.search.second_look.fusing import quantised
from myria.search.second_look.source import RelevanceSource, ShownTo
from myria.settings import SecondLookSettings, Settings

logger = logging.getLogger(__name__)

Look = Mapping[str, int]
"""How relevant each text is to one question, in steps."""

_KEPT: Final = 500


class SecondLook:
    """Asks the model, and keeps its last answers: pages of one answer show it the same texts."""

    def __init__(self, source: RelevanceSource, settings: SecondLookSettings) -> None:
        self.settings = settings
        self._source = source
        self._known: OrderedDict[bytes, list[int]] = OrderedDict()
        self._looked = 0
        self._failed = 0

    @classmethod
    def configured(
        cls,
        settings: Settings,
        environ: Mapping[str, str] | None = None,
        *,
        secrets: Secrets | None = None,
        chat: RelevanceSource | None = None,
    ) -> SecondLook | None:
        """Return the second look of the settings, None where there is none.

        Args:
            secrets: what the template may name; left out, those of the settings.
            chat: what asks the chat model, None where none is configured.

        Raises:
            ConfigurationError: the template cannot be used, or there is no chat model.
        """
        if settings.second_look.model == "off":
            return None
        if settings.second_look.model == "llm":
            if chat is None:
                raise ConfigurationError(
                    "second_look.model llm needs llm.template: a JSON file that names the model.", field="llm.template"
                )
            return cls(chat, settings.second_look)
        from myria.search.second_look.endpoint import RerankEndpoint  # noqa: PLC0415 - only where an endpoint is asked

        secrets = opened_secrets(settings.secrets, environ) if secrets is None else secrets
        environ = os.environ if environ is None else environ
        return cls(RerankEndpoint.configured(settings.second_look, environ, secrets), settings.second_look)

    def figures(self) -> dict[str, int]:
        """Return how many answers the model gave and how many failed since the start."""
        return {"looked": self._looked, "failed": self._failed}

    async def close(self) -> None:
        """Close connections and finish what is being written."""
        await self._source.close()

    def shown(self, speaker: str | None, text: str) -> str:
        """Return what the model is shown of a hit."""
        return (text if speaker is None else f"{speaker}: {text}")[: self.settings.text_characters]

    def known(self, question: str, texts: Sequence[str]) -> Look | None:
        """Return what was said of these texts before, None where they were not shown."""
        key = _key(question, texts)
        steps = self._known.get(key)
        if steps is None:
            return None
        self._known.move_to_end(key)
        return dict(zip(texts, steps, strict=True))

    async def ask(self, question: str, texts: Sequence[str], *, asker: ShownTo, within_s: float) -> Look | None:
        """Return what the model says of some texts, None where it says nothing usable in time."""
        try:
            steps = quantised(await self._source.relevance(question, texts, asker=asker, within_s=within_s))
        except ModelFailed as failure:
            self._failed += 1
            logger.info("a question goes without a second look: %s", failure.message, extra={"action": "no_look"})
            return None
        except Exception:
            self._failed += 1
            logger.exception("a second look failed", extra={"action": "no_look"})
            return None
        self._looked += 1
        self._known[_key(question, texts)] = steps
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return dict(zip(texts, steps, strict=True))


def _key(question: str, texts: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for text in (question, *texts):
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.digest()
