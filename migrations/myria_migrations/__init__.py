"""The database schema: ordered, forward-only SQL files, read through importlib.resources."""
