"""The Porter2 stemmer for English, written out so that an index never depends on somebody else's release.

Source: M. F. Porter, "The English (Porter2) stemming algorithm", snowballstem.org (2001, revised 2002). The input
is one lower-case word of a-z and the apostrophe; any other word is returned as it is.
"""

from __future__ import annotations

import re

_VOWELS = frozenset("aeiouy")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_LI_ENDING = frozenset("cdeghkmnrt")
_PLAIN = re.compile(r"[a-z']+\Z")
_KEPT_ENDINGS = frozenset("abfhjkopquvwxz")
"""No step changes a word that ends so."""
_REGION = re.compile(r"[aeiouy][^aeiouy]")
_HAS_VOWEL = re.compile(r"[aeiouy]")
_Y_AS_CONSONANT = re.compile(r"(?:^|(?<=[aeiouy]))y")

_SPECIAL = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    "sky": "sky",
    "news": "news",
    "howe": "howe",
    "atlas": "atlas",
    "cosmos": "cosmos",
    "bias": "bias",
    "andes": "andes",
}
_INVARIANT_AFTER_1A = frozenset(("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"))
_STEP_2 = (
    ("ational", "ate"),
    ("fulness", "ful"),
    ("iveness", "ive"),
    ("ization", "ize"),
    ("ousness", "ous"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("tional", "tion"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ation", "ate"),
    ("entli", "ent"),
    ("fulli", "ful"),
    ("iviti", "ive"),
    ("ousli", "ous"),
    ("abli", "able"),
    ("alli", "al"),
    ("anci", "ance"),
    ("ator", "ate"),
    ("enci", "ence"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("ogi", "og"),
    ("li", ""),
)
_STEP_3 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("ative", ""),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP_4 = (
    "ement",
    "able",
    "ance",
    "ence",
    "ible",
    "ment",
    "ant",
    "ate",
    "ent",
    "ion",
    "ism",
    "iti",
    "ive",
    "ize",
    "ous",
    "al",
    "er",
    "ic",
)

_SUFFIXES_2 = tuple(suffix for suffix, _ in _STEP_2)
_SUFFIXES_3 = tuple(suffix for suffix, _ in _STEP_3)
"""Most words end in none of a step's suffixes, which one look tells."""


def porter2(word: str) -> str:
    """Return the Porter2 stem of one lower-case English word; other words come back unchanged."""
    if len(word) <= 2 or not _PLAIN.match(word):
        return word
    special = _SPECIAL.get(word)
    if special is not None:
        return special
    word = word.removeprefix("'")
    if word[-1] in _KEPT_ENDINGS:
        return word
    # A consonant y is written Y until the end, so that the vowel tests stay plain.
    word = _Y_AS_CONSONANT.sub("Y", word)
    r1, r2 = _regions(word)
    word = _step_1a(_step_0(word))
    if word in _INVARIANT_AFTER_1A:
        return word
    word = _step_1c(_step_1b(word, r1))
    word = _step_3(_step_2(word, r1), r1, r2)
    return _step_5(_step_4(word, r2), r1, r2).replace("Y", "y")


def _regions(word: str) -> tuple[int, int]:
    if word.startswith(("gener", "arsen")):
        r1 = 5
    elif word.startswith("commun"):
        r1 = 6
    else:
        match = _REGION.search(word)
        r1 = match.end() if match else len(word)
    match = _REGION.search(word, r1)
    return r1, match.end() if match else len(word)


def _ends_in_short_syllable(word: str) -> bool:
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    if len(word) < 2:
        return False
    return word[-1] not in _VOWELS and word[-1] not in "wxY" and word[-2] in _VOWELS and word[-3] not in _VOWELS


def _step_0(word: str) -> str:
    if "'" not in word:
        return word
    for suffix in ("'s'", "'s", "'"):
        if word.endswith(suffix):
            return word[: -len(suffix)]
    return word


def _step_1a(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _HAS_VOWEL.search(word, 0, len(word) - 2) else word


def _step_1b(word: str, r1: int) -> str:
    if not word.endswith(("edly", "ingly", "ing", "ed")):
        return word
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return word[: -len(suffix)] + "ee" if len(word) - len(suffix) >= r1 else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            if not _HAS_VOWEL.search(stem):
                return word
            if stem.endswith(("at", "bl", "iz")):
                return stem + "e"
            if stem.endswith(_DOUBLES):
                return stem[:-1]
            if len(stem) <= r1 and _ends_in_short_syllable(stem):
                return stem + "e"
            return stem
    return word


def _step_1c(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        return word[:-1] + "i"
    return word


def _step_2(word: str, r1: int) -> str:
    if not word.endswith(_SUFFIXES_2):
        return word
    for suffix, replacement in _STEP_2:
        if word.endswith(suffix):
            at = len(word) - len(suffix)
            if at < r1:
                return word
            if suffix == "li":
                return word[:at] if at and word[at - 1] in _LI_ENDING else word
            if suffix == "ogi":
                return word[:-1] if at and word[at - 1] == "l" else word
            return word[:at] + replacement
    return word


def _step_3(word: str, r1: int, r2: int) -> str:
    if not word.endswith(_SUFFIXES_3):
        return word
    for suffix, replacement in _STEP_3:
        if word.endswith(suffix):
            at = len(word) - len(suffix)
            if at < r1 or (suffix == "ative" and at < r2):
                return word
            return word[:at] + replacement
    return word


def _step_4(word: str, r2: int) -> str:
    if not word.endswith(_STEP_4):
        return word
    for suffix in _STEP_4:
        if word.endswith(suffix):
            at = len(word) - len(suffix)
            if at < r2 or (suffix == "ion" and (not at or word[at - 1] not in "st")):
                return word
            return word[:at]
    return word


def _step_5(word: str, r1: int, r2: int) -> str:
    at = len(word) - 1
    if word.endswith("e"):
        if at >= r2 or (at >= r1 and not _ends_in_short_syllable(word[:-1])):
            return word[:-1]
    elif word.endswith("ll") and at >= r2:
        return word[:-1]
    return word
