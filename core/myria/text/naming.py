"""Recognises texts that name something: a title, a place, a make, a person other than the one addressed.

The sign is a capital inside a sentence, in scripts that have capitals. A name by which people address each other
("Thanks, Maria!") is nothing that a question asks for. In German, where every noun has a capital, nearly all texts
count, which changes no order.
"""

from __future__ import annotations

import re
from typing import Final

_CAPITAL: Final = re.compile(
    r"[A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0410-\u042f]"
    r"(?:(?<=[\w,;:)] .)|(?<=[\w,;:)] [\"'\u201c\u2018(\u00ab].))[^\W_]+"
)
"""A word with a capital inside a sentence. The context is checked behind the capital, since few characters are one."""

_FIRST_INSIDE: Final = 2
"""No capital before this place is inside a sentence."""

_SEPARATORS: Final = ",;:)"
_ENDS: Final = ("", ".", ",", "!", "?", ";")
_LONGEST_WORD: Final = 64
_CALLED_AFTER: Final = frozenset(
    "hey hi hello thanks thank you wow oh yeah yep yes no ok okay sorry congrats dear bye cool great btw".split()  # noqa: SIM905
)
_NO_NAMES: Final = frozenset({"OK", "BTW", "LOL", "OMG"})
_READ_CHARACTERS: Final = 8 * 1024


def names_something(text: str) -> bool:
    """Tell whether a text names something, or somebody who is not addressed; any string, linear time."""
    text = text[:_READ_CHARACTERS]
    inside = text[_FIRST_INSIDE:]
    if inside == inside.lower() and inside.isascii():
        return False
    for capitalised in _CAPITAL.finditer(text):
        start, end = capitalised.span()
        start = text.rindex(" ", 0, start)
        before = text[max(0, start - _LONGEST_WORD) : start].rsplit(maxsplit=1)[-1]
        if before[0].isupper() or capitalised[0] in _NO_NAMES:
            continue
        is_addressed = before.endswith(",") and text[end : end + 1] in _ENDS
        if not is_addressed and before.rstrip(_SEPARATORS).lower() not in _CALLED_AFTER:
            return True
    return False
