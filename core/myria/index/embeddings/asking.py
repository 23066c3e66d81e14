"""The vector of a question, within a short time or not at all: a read never fails or waits for it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from myria.errors import ModelFailed
from myria.index.embeddings.model import EmbeddingModel

logger = logging.getLogger(__name__)

_KEPT: Final = 1_000


class QuestionVectors:
    """Computes vectors of questions, and keeps the last thousand by their text: pages of one answer ask alike.

    Args:
        within_s: seconds after which a question is answered by its words alone.
    """

    def __init__(self, model: EmbeddingModel, *, within_s: float) -> None:
        self._model = model
        self._within_s = within_s
        self._known: OrderedDict[str, bytes | None] = OrderedDict()
        self._computed = 0
        self._failed = 0

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._model.name

    def figures(self) -> dict[str, int]:
        """Return how many vectors were computed and how many failed since the start."""
        return {"computed": self._computed, "failed": self._failed}

    async def close(self) -> None:
        """Close what computes them."""
        await self._model.close()

    def knows(self, text: str) -> bool:
        """Tell whether a question's vector is kept, or that it has none."""
        return text in self._known

    def known(self, text: str) -> bytes | None:
        """Return the vector of a question without computing, None where none is kept."""
        if text in self._known:
            self._known.move_to_end(text)
        return self._known.get(text)

    async def of(self, text: str) -> bytes | None:
        """Return the vector of a question, None where it has none or none came in time."""
        if self.knows(text):
            return self.known(text)
        try:
            vector = (await self._model.embed([text], within_s=self._within_s))[0]
        except ModelFailed as failure:
            self._failed += 1
            logger.info(
                "a question is answered by its words alone: %s",
                failure.message,
                extra={"action": "question_without_vector"},
            )
            return None
        except Exception:
            self._failed += 1
            logger.exception("the vector of a question failed", extra={"action": "question_without_vector"})
            return None
        self._computed += 1
        self._known[text] = vector
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return vector
