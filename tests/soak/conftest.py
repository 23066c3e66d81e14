"""A data folder whose server is ended with the test, whatever becomes of it."""

from tests.embedded.conftest import new_dir  # noqa: F401 - a fixture
