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
"""Most tokens by which a text may cost more after it is cut in the middle of a token."""

_MANY = 1 << 40
"""A number of tokens that no text has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCounter:
    """Counts tokens.

    `name` is the way of counting: `o200k`, or `bytes` where the encoder is not installed. `count(text)` returns the
    number of tokens or an upper bound of it. `within(text, limit)` returns the same or, if it exceeds the limit, None,
    in time that depends on the limit alone. `beginning(text, tokens)` returns the text of about the first so many
    tokens, cut between two characters, and `count(text)`.
    """

    name: str
    count: Callable[[str], int]
    within: Callable[[str, int], int | None]
    beginning: Callable[[str, int], tuple[str, int]]

    def bounded(self, text: str, limit: int) -> int:
        """Return how many tokens a text has; a number far above the limit if it has more than that."""
        tokens = self.within(text, limit)
        return limit + _MANY if tokens is None else tokens

    def shortened(self, text: str, limit: int) -> str:
        """Return about the longest beginning of a text that costs at most `limit` tokens, with an ellipsis if cut.

        The cut falls between words if a word ends in the last third, never within a character. The result is empty if
        not even an ellipsis fits.
        """
        if limit < 1:
            return ""
        characters = 2 * limit
        while True:
            beginning = text[:characters]
            kept_text, cost = self.beginning(beginning, limit - 1)
            if len(beginning) == len(text) and cost <= limit:
                return text
            if len(beginning) == len(text) or cost > limit + _DOUBT:
                break
            characters = max(characters * 3 // 2, characters * (limit + 2 * _DOUBT) // cost) + _DOUBT
        for tokens in range(limit - 2, -2, -1):  # cutting may cost tokens, so a beginning can still be too long
            last_space = kept_text.rfind(" ", len(kept_text) * 2 // 3)
            for candidate in (kept_text[:last_space], kept_text) if last_space > 0 else (kept_text,):
                cut = candidate.rstrip() + ELLIPSIS
                if self.within(cut, limit) is not None:
                    return cut
            kept_text, _ = self.beginning(kept_text, max(0, tokens))
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitting:
    """What fits into a budget: how many whole items, the beginning of the next or None, and the tokens of all."""

    whole: int
    part: str | None
    tokens: int

    @property
    def shown(self) -> int:
        """How many items are shown, the shortened one included."""
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
    """Return how many of the first items fit into a budget; the next one is shortened if enough of it would stay.

    Each item is counted once and the answer as a whole never, since no token spans two pieces: o200k first divides a
    text at ends of lines, and where a letter or a digit follows two or more characters that are neither.

    Args:
        count: number of items.
        head: the text before the first item; it ends at such a place, as every piece does.
        piece: returns the text of an item that another one follows; called for as few items as possible.
        part: returns the beginning of an item in that form, of at most so many tokens; None if too little would stay.
        finish: returns the last piece of an answer with all that follows it; "" gives what follows alone.
    """
    head_tokens = counter.count(head)
    frame_tokens = head_tokens + counter.count(finish(""))
    costs: list[int] = []
    tokens_left = budget - frame_tokens
    while len(costs) < count and tokens_left >= 0:
        costs.append(counter.bounded(piece(len(costs)), tokens_left + _DOUBT))
        tokens_left -= costs[-1]
    for whole in range(len(costs), -1, -1):
        tokens_before = sum(costs[:whole])
        if head_tokens + tokens_before > budget + _DOUBT:
            continue
        room = budget - frame_tokens - tokens_before
        while whole < count and room > 0 and (shortened := part(whole, room)) is not None:
            tokens = head_tokens + tokens_before + counter.count(finish(shortened))
            if tokens <= budget:
                return Fitting(whole=whole, part=shortened, tokens=tokens)
            room -= tokens - budget
        if whole:
            tokens = head_tokens + tokens_before - costs[whole - 1] + counter.count(finish(piece(whole - 1)))
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
        all_tokens = encoder.encode(text)
        kept_tokens = all_tokens[:tokens]
        decoded: str | None = encoder.decode(kept_tokens)
        while decoded is None:  # a token may end within a character
            kept_tokens.pop()
            decoded = encoder.decode(kept_tokens)
        return decoded, len(all_tokens)

    return TokenCounter(name="o200k", count=encoder.count, within=encoder.count_till_limit, beginning=beginning)


def byte_counter() -> TokenCounter:
    """Return the counter by UTF-8 bytes, which needs no encoder."""

    def count(text: str) -> int:
        return len(text.encode("utf-8", "surrogatepass"))

    def within(text: str, limit: int) -> int | None:
        return tokens if len(text) <= limit and (tokens := count(text)) <= limit else None

    def beginning(text: str, tokens: int) -> tuple[str, int]:
        encoded = text.encode("utf-8", "surrogatepass")
        return encoded[:tokens].decode("utf-8", "ignore"), len(encoded)

    return TokenCounter(name="bytes", count=count, within=within, beginning=beginning)
