-- When vectors of a model were last in use, so that those of a former one are removed (embeddings.keep_former_s).
--
-- Old pods neither read nor write it: what they add has the moment at which they add it.

ALTER TABLE myria.vector_progress ADD COLUMN used_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN myria.vector_progress.used_at IS 'When the model was last in use, as far as an hour.';
