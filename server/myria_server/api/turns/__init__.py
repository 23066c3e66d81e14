"""The tools of memory-tools: what a host calls before and after each turn."""
