"""Other ways to remember, each behind the same small interface, run in processes of their own (benchmarks/peers.py)."""
