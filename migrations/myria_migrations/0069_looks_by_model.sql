-- A chat model may look twice at the best hits of a question, and its calls are kept as those of walks are.
--
-- Old pods go on working: they make no such calls, and read them as any other.

ALTER TABLE myria.llm_calls DROP CONSTRAINT llm_calls_workflow_check;
ALTER TABLE myria.llm_calls ADD CONSTRAINT llm_calls_workflow_check
    CHECK (workflow IN ('build', 'walk', 'evaluate', 'extract', 'look')) NOT VALID;
