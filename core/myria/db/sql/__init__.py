"""Named SQL statements, one file per subject."""
