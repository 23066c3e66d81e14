-- Vectors of what events say, for questions asked in other words (docs/embeddings.md). Nothing is written here unless
-- embeddings are configured, and nothing here is truth: what is removed is computed again.

CREATE TABLE myria.text_vectors (
    tenant_id text COLLATE "C" NOT NULL,
    model     text COLLATE "C" NOT NULL,
    digest    bytea NOT NULL,
    vector    bytea NOT NULL,
    PRIMARY KEY (tenant_id, model, digest)
);
COMMENT ON TABLE myria.text_vectors IS 'The vector of each text by a model, once however many events say the same.';
COMMENT ON COLUMN myria.text_vectors.digest IS 'The first 16 bytes of the SHA-256 of the text.';
COMMENT ON COLUMN myria.text_vectors.vector IS 'A signed byte for each dimension, the largest 127 in size.';

CREATE TABLE myria.event_vectors (
    tenant_id text COLLATE "C" NOT NULL,
    model     text COLLATE "C" NOT NULL,
    event_seq bigint NOT NULL,
    scope_id  bigint NOT NULL,
    digest    bytea,
    xid       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (tenant_id, model, event_seq)
);
COMMENT ON TABLE myria.event_vectors IS 'Whose vector an event has.';
COMMENT ON COLUMN myria.event_vectors.digest IS 'NULL where the event says nothing that has a vector.';
COMMENT ON COLUMN myria.event_vectors.xid IS 'The writing transaction: cursors hide vectors that their first page could not see.';
CREATE INDEX event_vectors_scope ON myria.event_vectors (tenant_id, model, scope_id, xid);
CREATE INDEX event_vectors_new ON myria.event_vectors (tenant_id, model, xid);
CREATE INDEX event_vectors_digest ON myria.event_vectors (tenant_id, model, digest) WHERE digest IS NOT NULL;

CREATE TABLE myria.vector_progress (
    tenant_id text COLLATE "C" NOT NULL,
    model     text COLLATE "C" NOT NULL,
    done_seq  bigint NOT NULL,
    seen_seq  bigint NOT NULL,
    used_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, model)
);
COMMENT ON COLUMN myria.vector_progress.done_seq IS 'Every event up to here is in event_vectors, or is internal.';
COMMENT ON COLUMN myria.vector_progress.seen_seq IS 'The newest event when nothing was missing: when to look again, and no more.';
COMMENT ON COLUMN myria.vector_progress.used_at IS 'When the model was last in use, as far as an hour.';
