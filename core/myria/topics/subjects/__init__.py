"""The second hierarchy above a scope's leaves: by what they are about, not by when they were said.

A pure function of the set of leaves, each with its unit. `keys` says what a leaf may be about, from the leaf alone, and
which of that it is filed under; `holders` keeps, for each key, who holds it; `trie` puts what is filed under a key into
bounded nodes; `words` describes these, with `statements`; `update` brings all of it from one set of leaves to another,
and `whole` plans it from all leaves.
"""

SUBJECTS_VERSION = 13
"""Changes whenever the same leaves could give other subjects: those of every scope are then planned anew."""
