"""Snowball's stemmers, one of each for every thread, since one may not be used by two at once."""

from __future__ import annotations

from threading import local

import Stemmer

_kept = local()


def stemmer(language: str) -> Stemmer.Stemmer:
    """Return this thread's stemmer of a language, by its name in English. It keeps nothing of what it stems."""
    found: Stemmer.Stemmer | None = getattr(_kept, language, None)
    if found is None:
        found = Stemmer.Stemmer(language, 0)
        setattr(_kept, language, found)
    return found
