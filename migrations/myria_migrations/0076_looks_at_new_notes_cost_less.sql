-- What maintenance looks at of notes that are written with their events: see 0074.

CREATE OR REPLACE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.note_looks
    FOR EACH STATEMENT WHEN (current_setting('myria.admits', true) IS DISTINCT FROM 'own')
    EXECUTE FUNCTION myria.refuse_while_deleted();
