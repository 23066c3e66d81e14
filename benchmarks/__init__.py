"""Measurements of Myria's promises about cost and quality; docs/benchmarks.md holds what they gave.

They need Linux (process memory is read from /proc).
"""

import os

# Figures are of words alone unless a benchmark says otherwise.
os.environ.setdefault("MYRIA_EMBEDDINGS_MODEL", "off")
