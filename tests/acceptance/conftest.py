"""A real memory over a real database, served over real HTTP."""

from tests.server.conftest import memory, served, settings

__all__ = ["memory", "served", "settings"]
