"""Memories: notes that the agents of an organisation keep over REST (Memtrace's contract), and share.

A memory is an event of a note with what this contract adds to it; `memories` is folded from it in the append
transaction, and says by what it is listed.
"""
