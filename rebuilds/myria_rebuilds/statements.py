"""The statements about resources, beside the core's, by subject and name."""

from __future__ import annotations

from myria.db.queries import Statements

sql = Statements("myria_rebuilds.sql", "myria.db.sql")
