"""How two texts differ, word by word. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_COMPARED = 150
"""Words of each text that are compared: of longer ones the differing middle is shown as a whole, old and new. Comparing
takes more than the product of both, and texts are of anybody's making."""

Change = Literal["same", "gone", "new"]


class Part(NamedTuple):
    """A piece of text that both texts have, or only the older (`gone`) or the newer one (`new`)."""

    change: Change
    text: str


def differences(older: str, newer: str) -> list[Part]:
    """Return the parts of two texts in reading order; what differs stands as gone before new."""
    old, new = _TOKENS.findall(older), _TOKENS.findall(newer)
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    parts = [Part("same", "".join(old[:start]))]
    parts += _middle(old[start : len(old) - end], new[start : len(new) - end])
    parts.append(Part("same", "".join(old[len(old) - end :])))
    return [part for part in parts if part.text]


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many words two texts have in common at their beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (before, after) in pairs if before != after), min(len(old), len(new)))


def _middle(old: Sequence[str], new: Sequence[str]) -> list[Part]:
    """Return the parts between the common beginning and the common end."""
    if max(len(old), len(new)) > _MOST_COMPARED:
        return [Part("gone", "".join(old)), Part("new", "".join(new))]
    parts: list[Part] = []
    # Spaces are junk: one between changed words reads better as a part of the change.
    for change, at, upto, to, until in SequenceMatcher(str.isspace, old, new, autojunk=False).get_opcodes():
        if change == "equal":
            parts.append(Part("same", "".join(old[at:upto])))
        else:
            parts += [Part("gone", "".join(old[at:upto])), Part("new", "".join(new[to:until]))]
    return parts
