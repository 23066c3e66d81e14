"""Answers to questions: the snapshot view, what a mask may see, ranking, the answer tree and cursors.

It reads, and never changes memory.
"""
