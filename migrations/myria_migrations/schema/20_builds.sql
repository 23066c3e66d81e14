-- Builds: what asks for them, what they are made of, and the schedules of the installation.

CREATE TABLE myria.builds (
    tenant_id          text COLLATE "C" NOT NULL,
    build_id           text COLLATE "C" NOT NULL,
    status             text NOT NULL DEFAULT 'queued'
                       CHECK (status IN ('queued', 'running', 'succeeded', 'held', 'nothing_to_do', 'superseded', 'failed', 'aborted')),
    trigger            text NOT NULL CHECK (trigger IN ('manual', 'inactivity', 'tail_threshold')),
    is_full            boolean NOT NULL DEFAULT false,
    hold               boolean NOT NULL DEFAULT false,
    reason             text,
    request_id         text COLLATE "C",
    parent_snapshot_id text COLLATE "C",
    snapshot_id        text COLLATE "C",
    cutoff             bigint,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at         timestamptz,
    finished_at        timestamptz,
    lease_until        timestamptz,
    error              jsonb,
    counts             jsonb NOT NULL DEFAULT '{}',
    resource_name      text,
    resource_uid       text COLLATE "C",
    resource_manager   text,
    job_uid            text COLLATE "C",
    suspended          boolean NOT NULL DEFAULT false,
    revision           xid8 NOT NULL DEFAULT '0',
    tasks_done         integer,
    tasks_degraded     integer,
    pods_wanted_at     timestamptz,
    is_forced          boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, build_id),
    CHECK ((finished_at IS NULL) = (status IN ('queued', 'running')))
);
COMMENT ON COLUMN myria.builds.resource_uid IS 'The MyriaRebuild that this build belongs to; null where there is no Kubernetes.';
COMMENT ON COLUMN myria.builds.job_uid IS 'The Job that was made for it: once set, no other is ever made.';
COMMENT ON COLUMN myria.builds.suspended IS 'Its resource asks it to wait: it takes no slot of the installation.';
COMMENT ON COLUMN myria.builds.revision IS 'The transaction that wrote the row last.';
COMMENT ON COLUMN myria.builds.tasks_done IS 'How many of its tasks were done when it ended; null while it has not, and when nobody counted.';
COMMENT ON COLUMN myria.builds.tasks_degraded IS 'How many of those gave a deterministic answer where a model was asked for.';
COMMENT ON COLUMN myria.builds.pods_wanted_at IS 'When its Job was made, or last went on after suspend.';
COMMENT ON COLUMN myria.builds.is_forced IS 'Gives a snapshot although nothing is new.';
CREATE UNIQUE INDEX builds_one_unfinished ON myria.builds (tenant_id) WHERE finished_at IS NULL;
CREATE INDEX builds_newest ON myria.builds (tenant_id, created_at);
CREATE INDEX builds_ended ON myria.builds (tenant_id, finished_at);
CREATE UNIQUE INDEX builds_resource ON myria.builds (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX builds_resource_uid ON myria.builds (resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX builds_revision ON myria.builds (revision);

CREATE TABLE myria.build_tasks (
    tenant_id         text COLLATE "C" NOT NULL,
    build_id          text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    status            text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'done', 'failed')),
    attempt           integer NOT NULL DEFAULT 0,
    worker            text,
    lease_until       timestamptz,
    root_rendering_id bytea,
    counts            jsonb NOT NULL DEFAULT '{}',
    degraded_reason   text,
    error             jsonb,
    PRIMARY KEY (tenant_id, build_id, scope_id),
    FOREIGN KEY (tenant_id, build_id) REFERENCES myria.builds (tenant_id, build_id) ON DELETE CASCADE
);
COMMENT ON COLUMN myria.build_tasks.attempt IS 'The fencing token: finishing a task is a compare-and-set on it.';
CREATE INDEX build_tasks_open ON myria.build_tasks (tenant_id, build_id, scope_id) WHERE status <> 'done';

CREATE TABLE myria.build_parts (
    tenant_id         text COLLATE "C" NOT NULL,
    build_id          text COLLATE "C" NOT NULL,
    scope_id          bigint NOT NULL,
    part              integer NOT NULL,
    events            integer NOT NULL,
    begins_at         timestamptz NOT NULL,
    begins_seq        bigint NOT NULL,
    ends_at           timestamptz,
    ends_seq          bigint,
    status            text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'left', 'done')),
    attempt           integer NOT NULL DEFAULT 0,
    worker            text,
    lease_until       timestamptz,
    result            bytea[],
    counts            jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, build_id, scope_id, part),
    FOREIGN KEY (tenant_id, build_id, scope_id) REFERENCES myria.build_tasks (tenant_id, build_id, scope_id) ON DELETE CASCADE
);
COMMENT ON TABLE myria.build_parts IS 'What is shared of a big scope''s task while it is compiled; gone once the task is done.';
COMMENT ON COLUMN myria.build_parts.begins_at IS 'With begins_seq the position of the first event of the part; ends_at and ends_seq are that of the first after it.';
COMMENT ON COLUMN myria.build_parts.status IS 'left: a helper failed at it, and it is left to the worker that has the scope''s task.';
COMMENT ON COLUMN myria.build_parts.attempt IS 'The fencing token, as that of build_tasks.';
COMMENT ON COLUMN myria.build_parts.result IS 'The renderings of the top nodes of the units that begin in the part.';

CREATE TABLE myria.rebuild_requests (
    tenant_id        text COLLATE "C" NOT NULL,
    request_id       text COLLATE "C" NOT NULL,
    cause_key        text COLLATE "C" NOT NULL,
    trigger          text NOT NULL CHECK (trigger IN ('manual', 'inactivity', 'tail_threshold')),
    is_full          boolean NOT NULL DEFAULT false,
    hold             boolean NOT NULL DEFAULT false,
    reason           text,
    actor            text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    build_id         text COLLATE "C",
    resource_name    text,
    resource_uid     text COLLATE "C",
    resource_manager text,
    made_resource    boolean NOT NULL DEFAULT false,
    suspended        boolean NOT NULL DEFAULT false,
    closed_at        timestamptz,
    revision         xid8 NOT NULL DEFAULT '0',
    is_forced        boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, request_id),
    UNIQUE (tenant_id, cause_key)
);
COMMENT ON TABLE myria.rebuild_requests IS 'Every cause of a build, once: unique on its cause. A row with a build_id was taken up.';
COMMENT ON COLUMN myria.rebuild_requests.resource_name IS 'The MyriaRebuild of this request; written before the operator makes one.';
COMMENT ON COLUMN myria.rebuild_requests.made_resource IS 'The operator made the resource out of this row, and may prune it.';
COMMENT ON COLUMN myria.rebuild_requests.closed_at IS 'Its resource ended or went away without a build: never taken up again.';
CREATE INDEX rebuild_requests_waiting ON myria.rebuild_requests (tenant_id, created_at) WHERE build_id IS NULL;
CREATE UNIQUE INDEX rebuild_requests_resource ON myria.rebuild_requests (tenant_id, resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX rebuild_requests_resource_uid ON myria.rebuild_requests (resource_uid) WHERE resource_uid IS NOT NULL;
CREATE INDEX rebuild_requests_revision ON myria.rebuild_requests (revision);

CREATE TABLE myria.schedules (
    name       text COLLATE "C" PRIMARY KEY,
    expression text NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE myria.schedules IS 'One row per schedule of the installation: its cron expression, and since when it is this one.';
