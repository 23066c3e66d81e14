"""Myria's domain: events, scopes, topics, TopicIndex, retrieval, snapshots and the store beneath them."""

__version__ = "0.1.0"
