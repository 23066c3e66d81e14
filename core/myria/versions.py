"""The versions of what is stored and how it is found, beside the schema's; whoever only names them imports no more."""

from __future__ import annotations

from typing import Final

ANALYSIS_VERSION: Final = 3
"""Changes whenever the same text may give other terms; search blocks and plans made before are then stale."""

BLOCK_VERSION: Final = 10
"""Changes with the layout of a search block, and with what is said in it; a reader refuses what it does not know."""

SEARCH_VERSION: Final = ANALYSIS_VERSION + BLOCK_VERSION - 1
"""Stored with each block. Both only ever grow, so no two pairs of them that existed have the same sum."""

PLANNER_VERSION: Final = "deterministic-11"
"""Changes whenever the same events could give another tree: every scope is then dirty."""

RANKING_VERSION: Final = 29
"""Of how scores are made: pages that one version began are not gone on with by another."""
