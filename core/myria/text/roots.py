"""Words by their beginnings, for comparing texts of any language where nothing is stored of it."""

from __future__ import annotations

from typing import Final

_ROOT: Final = 5
"""Letters by which words are known, whatever their endings: as good as a stemmer for most languages (McNamee 2004)."""


def root(term: str) -> str:
    """Return what words with the same beginning have in common; what holds a digit is itself."""
    return term if any(map(str.isdigit, term)) else term[:_ROOT]
