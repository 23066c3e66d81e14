"""The append-only event log: what an event is, who may see it, and how it is appended, withdrawn, redacted and moved.

It knows the database. It does not know what is folded or compiled from events: projections are given to it.
"""
