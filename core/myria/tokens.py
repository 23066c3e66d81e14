"""How many tokens a text costs a model, as a bound that is never exceeded: o200k, counted without a network.

Where the encoder is not installed (extra `server` brings it), a text counts as many tokens as it has UTF-8 bytes: every
token of a byte-level encoding stands for one byte at least, so that bound is true for every script, if wasteful.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

_log = logging.getLogger(__name__)

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounter:
    """Counts tokens.

    `name` says how: `o200k`, or `bytes` where the encoder is away. `count` returns how many tokens a text has, or a
    bound that is not below it.
    """

    name: str
    count: Callable[[str], int]

    def shortened(self, text: str, limit: int) -> str:
        """Return the longest beginning of a text that costs at most `limit` tokens, ended by an ellipsis where cut.

        The cut falls between words where one ends in the last third, never within a character. Empty where not even an
        ellipsis fits.
        """
        if self.count(text) <= limit:
            return text
        kept, beyond = 0, len(text)
        while kept + 1 < beyond:  # what fits is not strictly monotonous; what is returned was counted
            middle = (kept + beyond) // 2
            if self.count(text[:middle] + ELLIPSIS) <= limit:
                kept = middle
            else:
                beyond = middle
        if self.count(text[:kept] + ELLIPSIS) > limit:
            return ""
        at_word = text.rfind(" ", kept * 2 // 3, kept)
        words = text[: at_word if at_word > 0 else kept].rstrip() + ELLIPSIS
        return words if self.count(words) <= limit else text[:kept] + ELLIPSIS


def most_within(
    count: int, cost: Callable[[int], int], total: Callable[[int], int], *, around: int, budget: int
) -> int:
    """Return how many of the first `count` items fit into a budget: as many as do by what they cost together.

    Args:
        cost: what the item at a place costs by itself: a guess, asked of no more items than it takes.
        total: what the first so many cost together.
        around: what stands around them costs about so much.
    """
    fitting, left = 0, budget - around
    while fitting < count and (left := left - cost(fitting)) >= 0:
        fitting += 1
    guess = fitting
    while fitting and total(fitting) > budget:
        fitting -= 1
    while fitting == guess < count and total(fitting + 1) <= budget:
        fitting = guess = fitting + 1
    return fitting


@lru_cache(maxsize=1)
def token_counter() -> TokenCounter:
    """Return the counter of this process; the first call loads the vocabulary (a tenth of a second, 70 MB)."""
    try:
        from rs_bpe.bpe import openai  # noqa: PLC0415 - heavy, and not everywhere

        encoder = openai.o200k_base()
    except Exception as error:  # noqa: BLE001 - whatever keeps it away, the bound by bytes is true
        _log.warning(
            "no token encoder (%s): budgets count bytes, so answers are shorter than they might be; "
            "pip install 'myria[server]' brings one",
            error,
            extra={"action": "token_encoder_away"},
        )
        return TokenCounter(name="bytes", count=lambda text: len(text.encode("utf-8", "surrogatepass")))
    return TokenCounter(name="o200k", count=encoder.count)
