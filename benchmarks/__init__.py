"""Measurements of Myria's promises about cost and quality; docs/benchmarks.md holds what they gave.

Each part is a program of its own: `python -m benchmarks.reads --help`. `python -m benchmarks` runs them all. They need
Linux (process memory is read from /proc).
"""
