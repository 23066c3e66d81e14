"""The append-only event log: what an event is, who may see it, and how it is appended, withdrawn, redacted and moved.

It knows the database, but not what is folded or compiled from events: its callers pass projections in.
"""
