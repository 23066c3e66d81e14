"""Snowball's stemmers, one of each for every thread, since one may not be used by two at once."""

from __future__ import annotations

from threading import local

import Stemmer

_thread_stemmers = local()


def stemmer(language: str) -> Stemmer.Stemmer:
    """Return this thread's stemmer of a language, by its name in English. It caches no words."""
    cached: Stemmer.Stemmer | None = getattr(_thread_stemmers, language, None)
    if cached is None:
        cached = Stemmer.Stemmer(language, 0)
        setattr(_thread_stemmers, language, cached)
    return cached
