-- Parts of one big scope's task, which several processes of a build work on at the same time.
--
-- Old pods go on working: they neither make nor read them, and compile a scope alone, with the same result.

CREATE TABLE myria.build_parts (
    tenant_id         text COLLATE "C" NOT NULL,
    build_id          text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    kind              text NOT NULL CHECK (kind IN ('units', 'subjects')),
    part              integer NOT NULL,
    events            integer,
    begins_at         timestamptz,
    begins_seq        bigint,
    ends_at           timestamptz,
    ends_seq          bigint,
    root_rendering_id bytea,
    status            text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'left', 'done')),
    attempt           integer NOT NULL DEFAULT 0,
    worker            text,
    lease_until       timestamptz,
    result            bytea[],
    counts            jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, build_id, scope_id, kind, part),
    FOREIGN KEY (tenant_id, build_id, scope_id) REFERENCES myria.build_tasks (tenant_id, build_id, scope_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.build_parts IS 'What is shared of a big scope''s task while it is compiled; gone once the task is done.';
COMMENT ON COLUMN myria.build_parts.begins_at IS 'With begins_seq the position of the first event of a part of kind units, up to which ends_at and ends_seq exclude.';
COMMENT ON COLUMN myria.build_parts.root_rendering_id IS 'Of a part of kind subjects: the tree of time over whose leaves they are.';
COMMENT ON COLUMN myria.build_parts.status IS 'left: a helper failed at it, and it is left to the worker that has the scope''s task.';
COMMENT ON COLUMN myria.build_parts.attempt IS 'The fencing token, as that of build_tasks.';
COMMENT ON COLUMN myria.build_parts.result IS 'The renderings of the top nodes of the units that begin in the part; or of the subjects of the part, in order.';

ALTER TABLE myria.build_parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.build_parts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.build_parts
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.build_parts
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();
