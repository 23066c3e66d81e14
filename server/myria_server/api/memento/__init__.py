"""The API of agents (Memento's contract)."""
