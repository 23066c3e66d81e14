"""Myria's domain: the log, topics, the index, builds, search and notes, and the database beneath them."""

import os

# Before numpy is imported, which reads it then: its threads make the small products of a vector
# (index/embeddings/minilm.py) no faster, and on a busy machine many times slower, as they wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
