-- Maintenance lists contradictions without a look at other links.
--
-- Old pods go on working.

CREATE INDEX note_links_contradict ON myria.note_links (tenant_id, event_seq DESC) WHERE relation = 'contradicts';
