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


_DOUBT = 8
"""Tokens by which the beginning of a text may cost more for being cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounter:
    """Counts tokens.

    `name` says how: `o200k`, or `bytes` where the encoder is away. `count` returns how many tokens a text has, or a
    bound that is not below it.
    """

    name: str
    count: Callable[[str], int]

    def bounded(self, text: str, limit: int) -> int:
        """Return how many tokens a text has, or some number above a limit where it has more.

        A long text is counted as far as that takes.
        """
        return self._beyond(text, limit)[1]

    def _beyond(self, text: str, limit: int) -> tuple[str, int]:
        """Return the beginning of a text that surely costs more than a limit, or all of it, with what that costs."""
        characters = 2 * (max(0, limit) + _DOUBT)
        while characters < len(text):
            beginning = text[:characters]
            if (tokens := self.count(beginning)) > limit + _DOUBT:
                return beginning, tokens
            characters *= 3
        return text, self.count(text)

    def shortened(self, text: str, limit: int) -> str:
        """Return the longest beginning of a text that costs at most `limit` tokens, ended by an ellipsis where cut.

        The cut falls between words where one ends in the last third, never within a character. Empty where not even an
        ellipsis fits.
        """
        text, tokens = self._beyond(text, limit)
        if tokens <= limit:
            return text
        kept, beyond = 0, len(text)
        tried = len(text) * max(0, limit) // tokens  # about there, since texts cost alike from end to end
        step = 1 + len(text) // 64
        while kept + 1 < beyond:  # what fits is not strictly monotonous; what is returned was counted
            tried = min(max(tried, kept + 1), beyond - 1)
            if self.count(text[:tried] + ELLIPSIS) <= limit:
                kept = tried
                tried = tried + step if beyond == len(text) else (kept + beyond) // 2
            else:
                beyond = tried
                tried = tried - step if kept == 0 else (kept + beyond) // 2
            step *= 2
        if self.count(text[:kept] + ELLIPSIS) > limit:
            return ""
        at_word = text.rfind(" ", kept * 2 // 3, kept)
        words = text[: at_word if at_word > 0 else kept].rstrip() + ELLIPSIS
        return words if self.count(words) <= limit else text[:kept] + ELLIPSIS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """What fits into a budget: how many items whole, the beginning of the next if it is shown, and what that costs."""

    whole: int
    part: str | None
    tokens: int

    @property
    def shown(self) -> int:
        """How many items are shown."""
        return self.whole + (self.part is not None)


def fitted(
    count: int,
    *,
    head: str,
    piece: Callable[[int], str],
    part: Callable[[int, int], str | None],
    finish: Callable[[str], str],
    counter: TokenCounter,
    budget: int,
) -> Fitting:
    """Return how many of the first items fit into a budget; the next one is shortened where that is worth it.

    Counting is most of recall's own work. So each item is counted once, and the answer as a whole never: it comes in
    pieces that no token spans. o200k first divides a text, also at the end of a line, and where a letter or a digit
    follows two or more characters that are neither; no token reaches over such a place.

    Args:
        count: of the items.
        head: what stands before the first item, up to such a place, as does every piece.
        piece: returns an item as it stands before another one; asked of no more items than it takes.
        part: returns the beginning of an item in that form, which costs at most so many tokens; None where too
            little of it would stay.
        finish: returns a piece as it stands last, with all that follows it.
    """
    begin = counter.count(head)
    around = begin + counter.count(finish(""))
    costs: list[int] = []
    left = budget - around
    while len(costs) < count and left >= 0:
        costs.append(counter.bounded(piece(len(costs)), left))
        left -= costs[-1]
    for whole in range(len(costs), -1, -1):
        before = sum(costs[:whole])
        if begin + before > budget + _DOUBT:
            continue
        room = budget - around - before
        while whole < count and room > 0 and (shown := part(whole, room)) is not None:
            tokens = begin + before + counter.count(finish(shown))
            if tokens <= budget:
                return Fitting(whole=whole, part=shown, tokens=tokens)
            room -= tokens - budget
        if whole:
            tokens = begin + before - costs[whole - 1] + counter.count(finish(piece(whole - 1)))
            if tokens <= budget:
                return Fitting(whole=whole, part=None, tokens=tokens)
    return Fitting(whole=0, part=None, tokens=0)


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
