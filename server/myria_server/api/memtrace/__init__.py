"""Memtrace's REST API and its tools: memories, agents and sessions."""
