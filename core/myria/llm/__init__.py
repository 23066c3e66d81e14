"""Models that may propose: how they are called, bounded, masked and audited; nothing here decides.

Without a request template nothing of this package is at work. A model's plan or choice goes through the same rules as
the deterministic one, and whatever fails, the deterministic result stands.
"""
