"""PostgreSQL: connections and their bounds, named statements, locks, clocks and the schema's state.

It knows nothing of what the rows mean.
"""
