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

_MANY = 1 << 40
"""More tokens than any text has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCounter:
    """Counts tokens.

    `name` says how: `o200k`, or `bytes` where the encoder is away. `count` returns how many tokens a text has, or a
    bound that is not below it; `within` the same, or None where that is more than a limit, in time that grows with the
    limit alone; `beginning` about as much of a text as so many tokens stand for, cut between two characters, and what
    `count` does.
    """

    name: str
    count: Callable[[str], int]
    within: Callable[[str, int], int | None]
    beginning: Callable[[str, int], tuple[str, int]]

    def bounded(self, text: str, limit: int) -> int:
        """Return how many tokens a text has, or some number far above a limit where it has more."""
        tokens = self.within(text, limit)
        return limit + _MANY if tokens is None else tokens

    def shortened(self, text: str, limit: int) -> str:
        """Return a beginning of a text that costs at most `limit` tokens, ended by an ellipsis where cut: about the
        longest.

        The cut falls between words where one ends in the last third, never within a character. Empty where not even an
        ellipsis fits.
        """
        if limit < 1:
            return ""
        characters = 2 * limit
        while True:
            part = text[:characters]
            kept, cost = self.beginning(part, limit - 1)
            if len(part) == len(text) and cost <= limit:
                return text
            if len(part) == len(text) or cost > limit + _DOUBT:
                break
            characters = max(characters * 3 // 2, characters * (limit + 2 * _DOUBT) // cost) + _DOUBT
        for tokens in range(limit - 2, -2, -1):  # what a text costs is not always what its beginnings do
            at_word = kept.rfind(" ", len(kept) * 2 // 3)
            for shown in (kept[:at_word], kept) if at_word > 0 else (kept,):
                cut = shown.rstrip() + ELLIPSIS
                if self.within(cut, limit) is not None:
                    return cut
            kept, _ = self.beginning(kept, max(0, tokens))
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
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

    Each item is counted once, and the answer as a whole never: it comes in pieces that no token spans. o200k first
    divides a text, also at the end of a line, and where a letter or a digit follows two or more characters that are
    neither; no token reaches over such a place.

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
        costs.append(counter.bounded(piece(len(costs)), left + _DOUBT))
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
        return byte_counter()

    def beginning(text: str, tokens: int) -> tuple[str, int]:
        every = encoder.encode(text)
        kept = every[:tokens]
        shown: str | None = encoder.decode(kept)
        while shown is None:  # a token may end within a character
            kept.pop()
            shown = encoder.decode(kept)
        return shown, len(every)

    return TokenCounter(name="o200k", count=encoder.count, within=encoder.count_till_limit, beginning=beginning)


def byte_counter() -> TokenCounter:
    """Return the counter that needs no encoder."""

    def count(text: str) -> int:
        return len(text.encode("utf-8", "surrogatepass"))

    def within(text: str, limit: int) -> int | None:
        return tokens if len(text) <= limit and (tokens := count(text)) <= limit else None

    def beginning(text: str, tokens: int) -> tuple[str, int]:
        every = text.encode("utf-8", "surrogatepass")
        return every[:tokens].decode("utf-8", "ignore"), len(every)

    return TokenCounter(name="bytes", count=count, within=within, beginning=beginning)
