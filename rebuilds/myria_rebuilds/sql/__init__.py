"""Named SQL statements about resources and their builds."""
