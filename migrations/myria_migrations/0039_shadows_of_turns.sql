-- Shadow mode of turns: what a host computed itself, compared with what the tools answered; and each tenant's cut-over.
--
-- Old pods go on working: they compare nothing, and serve turns to every tenant.

ALTER TABLE myria.tenants ADD COLUMN turns_mode text COLLATE "C" CHECK (turns_mode IN ('on', 'shadow', 'off'));
COMMENT ON COLUMN myria.tenants.turns_mode IS 'Whether turns are served to it, and compared with its own results; NULL: what the settings say.';

-- Figures alone: nothing of what was said, on either side.
CREATE TABLE myria.turn_shadows (
    tenant_id   text COLLATE "C" NOT NULL,
    owner       bytea NOT NULL,
    context_id  text COLLATE "C" NOT NULL,
    turn_id     text COLLATE "C" NOT NULL,
    call        text COLLATE "C" NOT NULL CHECK (call IN ('before', 'after')),
    aspect      text COLLATE "C" NOT NULL CHECK (aspect IN ('facts', 'items', 'tokens', 'all')),
    same        boolean NOT NULL,
    ours        bigint NOT NULL,
    theirs      bigint NOT NULL,
    missing     bigint NOT NULL,
    extra       bigint NOT NULL,
    compared_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, owner, context_id, turn_id, call, aspect)
);
CREATE INDEX turn_shadows_newest ON myria.turn_shadows (tenant_id, compared_at);
COMMENT ON TABLE myria.turn_shadows IS 'How answers compared with what hosts computed themselves, in shadow mode.';
COMMENT ON COLUMN myria.turn_shadows.aspect IS 'What was compared; all: the result of the host could not be read.';
COMMENT ON COLUMN myria.turn_shadows.missing IS 'What the host has and the answer has not.';
COMMENT ON COLUMN myria.turn_shadows.extra IS 'What the answer has and the host has not.';

ALTER TABLE myria.turn_shadows ENABLE ROW LEVEL SECURITY;
ALTER TABLE myria.turn_shadows FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_named ON myria.turn_shadows
    USING (tenant_id = current_setting('myria.tenant', true) OR current_setting('myria.tenant', true) = '*');
CREATE TRIGGER refuse_while_deleted BEFORE INSERT ON myria.turn_shadows
    FOR EACH STATEMENT EXECUTE FUNCTION myria.refuse_while_deleted();
