-- What work beside builds waits for, until it goes well: {work: {reason, since}}. A wrong key of embeddings stood in the log
-- alone, once for each try. (waits.py)

ALTER TABLE myria.tenants ADD COLUMN waits jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN myria.tenants.waits IS 'Work of upkeep that a model''s provider keeps from being done: since when, and what the provider said last.';
