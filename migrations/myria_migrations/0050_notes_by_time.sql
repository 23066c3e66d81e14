-- What other faces keep stands in the lists of REST too: the live notes of a scope by time. Memories have lists of their own.
--
-- Old pods go on working.

CREATE INDEX notes_made ON myria.notes (tenant_id, scope_id, created_at, first_seq)
    WHERE live AND kind NOT IN ('episodic', 'session', 'entity');
