"""The memory and its server as in tests/server."""

from tests.server.conftest import memory, patient_looks, served, settings

__all__ = ["memory", "patient_looks", "served", "settings"]
