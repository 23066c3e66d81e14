"""Characters that nobody sees, which names must not hold: with them, names that look alike would be different ones.

Refused are format characters (Unicode category Cf: zero-width spaces and joiners, marks of writing direction, soft
hyphens, tags), separators of lines and paragraphs (Zl, Zp), and the other characters that Unicode lets a display ignore
(Default_Ignorable_Code_Point: fillers, variation selectors). ZERO WIDTH JOINER and NON-JOINER belong to the spelling of
some scripts, but a name with one looks like the name without it, so they are refused too. Letters of two scripts that
look alike are not found here.
"""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = frozenset({"Cf", "Zl", "Zp"})
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def unseen_character(name: str) -> int | None:
    """Return the position of the first character that nobody sees, or None."""
    if name.isascii() or (name.isprintable() and _IGNORABLE.search(name) is None):
        return None
    for position, character in enumerate(name):
        if unicodedata.category(character) in _UNSEEN or _IGNORABLE.match(character):
            return position
    return None


def described(character: str) -> str:
    """Return a character's code point and name, such as `U+200B ZERO WIDTH SPACE`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
