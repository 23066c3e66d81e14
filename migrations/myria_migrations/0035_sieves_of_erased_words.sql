-- Sieves beside the digests of erased words: whoever proves their absence need not digest every phrase of every text.
--
-- Old pods write no digests; those that are there have no sieve, and are looked for as before.

ALTER TABLE myria.erased_words ADD COLUMN sieve integer;
COMMENT ON COLUMN myria.erased_words.sieve IS '24 bits of keyed hashes of the phrase''s words: a text is sieved before its phrases are digested. NULL in receipts from before.';
