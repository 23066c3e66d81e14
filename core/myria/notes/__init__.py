"""Kept statements: notes, facts of turns, memories over REST and sessions, with their projections.

It writes through the log and reads through search.
"""
