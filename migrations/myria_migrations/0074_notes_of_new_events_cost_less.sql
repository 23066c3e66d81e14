-- Notes that are written with their events: who appended those has looked at the tenant in the same transaction.
--
-- Old pods go on working: they look as before, or call the functions that look.

CREATE OR REPLACE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.notes
    FOR EACH STATEMENT WHEN (current_setting('myria.admits', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.refuse_while_deleted();
