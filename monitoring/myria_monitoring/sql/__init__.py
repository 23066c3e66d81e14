"""Named SQL statements that read figures."""
