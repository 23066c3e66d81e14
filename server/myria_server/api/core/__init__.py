"""The core tools: events, questions, snapshots and erasures."""
