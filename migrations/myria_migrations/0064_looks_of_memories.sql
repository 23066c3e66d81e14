-- What maintenance's queue still holds of memories that need no look (0062). Not there: however many these are, nobody
-- waits for the table of notes meanwhile.
--
-- Old pods go on working: what they look at again and is gone, they pass over.

SELECT set_config('myria.tenant', '*', true);
DELETE FROM myria.note_looks k
USING myria.notes n
WHERE n.tenant_id = k.tenant_id AND n.note_id = k.note_id AND n.kind IN ('episodic', 'session', 'entity') AND NOT n.session;
