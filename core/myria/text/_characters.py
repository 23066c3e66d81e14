"""What one character is in a text, from Unicode 3.2 alone: no Python release can move a word boundary.

Classes, one letter per character: `w` part of a word, `c` of a script written without spaces (or, for Hangul,
with particles glued on), `h` a Han ideograph, `m` a mark or invisible character (a Hangul vowel or final, too)
that belongs to what is before it, `'` an apostrophe, and a space for all that separates words. Characters that
Unicode 3.2 does not know are word characters, except emoji.
"""

from __future__ import annotations

from unicodedata import ucd_3_2_0

_CACHED_CHARACTERS = 16_384
"""Most characters that each table keeps; others are worked out each time, so that memory stays bounded."""

_APOSTROPHES = frozenset("'\u2018\u2019\u02bc\uff07")
_SEPARATE = " "

_CLUSTER_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1100, 0x11FF),  # Hangul jamo
    (0x3041, 0x30FF),  # Hiragana, Katakana
    (0x3105, 0x318F),  # Bopomofo, compatibility jamo
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0xAC00, 0xD7AF),  # Hangul syllables
    (0xFF66, 0xFFDC),  # half-width forms
    (0x1B000, 0x1B16F),
)
_HAN_RANGES = (
    (0x3005, 0x3007),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_DROPPED_RANGES = (
    (0x0300, 0x036F),  # combining accents
    (0x0591, 0x05C7),  # Hebrew points
    (0x0640, 0x0640),  # Arabic stretching
    (0x064B, 0x0652),  # Arabic vowels
    (0x0670, 0x0670),
    (0xFE00, 0xFE0F),  # variation selectors
)
_EMOJI_RANGES = ((0x1F000, 0x1FAFF), (0x2190, 0x2BFF), (0xE0000, 0xE0FFF))


class ClassTable(dict[int, str]):
    """A table for `str.translate` that turns each character into the letter of its class."""

    def __missing__(self, code: int) -> str:
        letter = _class_of(code)
        if len(self) < _CACHED_CHARACTERS:
            self[code] = letter
        return letter


class FoldTable(dict[int, str]):
    """A table for `str.translate` that folds case, compatibility forms and Latin, Greek or Cyrillic accents."""

    def __missing__(self, code: int) -> str:
        folded = _fold_character(code)
        if len(self) < _CACHED_CHARACTERS:
            self[code] = folded
        return folded


def _class_of(code: int) -> str:
    """Return the class letter of a character, as the module's text lists them."""
    character = chr(code)
    if character in _APOSTROPHES:
        return "'"
    category = ucd_3_2_0.category(character)
    major = category[0]
    if major == "M" or category == "Cf" or 0x1160 <= code <= 0x11FF or code in (0xFF9E, 0xFF9F):
        return "m"
    if category in ("Cs", "Cc", "Co") or major in "ZP" or category in ("Sm", "Sc", "Sk", "So"):
        return _SEPARATE
    if _within(code, _HAN_RANGES):
        return "h"
    if _within(code, _CLUSTER_RANGES):
        return "c"
    if category == "Cn" and _within(code, _EMOJI_RANGES):
        return _SEPARATE
    return "w"


def _fold_character(code: int) -> str:
    """Return the folded form of a character: none, one or several characters."""
    character = chr(code)
    if character in _APOSTROPHES:
        return "'"
    category = ucd_3_2_0.category(character)
    if category == "Cn":
        # Its case mapping may differ between Python releases; those of known characters are stable since 5.0.
        return character
    if category in ("Cf", "Me") or _within(code, _DROPPED_RANGES):
        return ""
    folded = ucd_3_2_0.normalize("NFKC", character).casefold()
    decomposed = ucd_3_2_0.normalize("NFKD", folded)
    without_accents = "".join(c for c in decomposed if not 0x0300 <= ord(c) <= 0x036F)
    if without_accents != decomposed:
        folded = without_accents
    return "".join(c for c in folded if _class_of(ord(c)) not in (_SEPARATE, "'"))


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= code <= high for low, high in ranges)
