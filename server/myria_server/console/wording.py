"""How two texts differ, word by word. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_COMPARED = 200
"""Words of each text that are compared: of longer ones the differing middle is shown as a whole, old and new. Comparing
takes the product of both, and texts are of anybody's making."""

Change = Literal["same", "gone", "new"]


class Part(NamedTuple):
    """A piece of text that both texts have, or only the older (`gone`) or the newer one (`new`)."""

    change: Change
    text: str


def differences(older: str, newer: str) -> list[Part]:
    """Return the parts of two texts in reading order; what differs stands as gone before new."""
    old, new = _TOKENS.findall(older), _TOKENS.findall(newer)
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    parts = [
        Part("same", "".join(old[:start])),
        *_middle(old[start : len(old) - end], new[start : len(new) - end]),
        Part("same", "".join(old[len(old) - end :])),
    ]
    return [part for part in parts if part.text]


def _middle(old: list[str], new: list[str]) -> list[Part]:
    """Return the parts between the common beginning and the common end, by a longest common subsequence."""
    if max(len(old), len(new)) > _MOST_COMPARED:
        return [Part("gone", "".join(old)), Part("new", "".join(new))]
    longest = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for at in range(len(old) - 1, -1, -1):
        for to in range(len(new) - 1, -1, -1):
            if old[at] == new[to]:
                longest[at][to] = longest[at + 1][to + 1] + 1
            else:
                longest[at][to] = max(longest[at + 1][to], longest[at][to + 1])
    parts: list[Part] = []
    gone: list[str] = []
    came: list[str] = []
    at = to = 0
    while at < len(old) or to < len(new):
        if at < len(old) and to < len(new) and old[at] == new[to]:
            # A lone space between changed words reads better as a part of the change.
            is_space = old[at].isspace() and (gone or came) and _changes_after(old, new, at, to)
            if is_space:
                gone.append(old[at])
                came.append(new[to])
            else:
                parts += [Part("gone", "".join(gone)), Part("new", "".join(came)), Part("same", old[at])]
                gone, came = [], []
            at, to = at + 1, to + 1
        elif to == len(new) or (at < len(old) and longest[at + 1][to] >= longest[at][to + 1]):
            gone.append(old[at])
            at += 1
        else:
            came.append(new[to])
            to += 1
    parts += [Part("gone", "".join(gone)), Part("new", "".join(came))]
    return _joined(parts)


def _changes_after(old: list[str], new: list[str], at: int, to: int) -> bool:
    """Tell whether the texts differ again right after a place where they agree."""
    return at + 1 < len(old) and to + 1 < len(new) and old[at + 1] != new[to + 1]


def _joined(parts: list[Part]) -> list[Part]:
    """Return the parts without empty ones, neighbours of one kind as one."""
    joined: list[Part] = []
    for part in parts:
        if not part.text:
            continue
        if joined and joined[-1].change == part.change:
            joined[-1] = Part(part.change, joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
