"""How long a test waits for a condition before it fails.

A wait costs nothing when the condition comes, so this is far more than a slow machine with other work needs. A test
that means "within five seconds" counts something else than seconds.
"""

PATIENCE_S = 240.0
