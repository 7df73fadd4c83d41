-- Makes the tables of the groups and of their brokers, unless they are there, and the columns that those of an earlier version
-- lack; binds nothing. Without the lock PostgreSQL fails in one of two brokers that make it at once.
DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('headrace_cluster_groups'));
    CREATE TABLE IF NOT EXISTS headrace_cluster_groups (
        cluster text NOT NULL,
        name text NOT NULL,
        version bigint NOT NULL,
        epoch bigint NOT NULL,
        leader text NOT NULL,
        in_sync_names text[] NOT NULL,
        in_sync_stores text[] NOT NULL,
        unclean bigint NOT NULL DEFAULT 0,
        lossy bigint NOT NULL DEFAULT 0,
        group_id text NOT NULL DEFAULT gen_random_uuid()::text,
        ack text NOT NULL DEFAULT 'in_sync',
        CONSTRAINT pk_headrace_cluster_groups PRIMARY KEY (cluster, name)
    );
    ALTER TABLE headrace_cluster_groups ADD COLUMN IF NOT EXISTS unclean bigint NOT NULL DEFAULT 0;
    ALTER TABLE headrace_cluster_groups ADD COLUMN IF NOT EXISTS lossy bigint NOT NULL DEFAULT 0;
    -- Each group that is there gets an id of its own.
    ALTER TABLE headrace_cluster_groups
    ADD COLUMN IF NOT EXISTS group_id text NOT NULL DEFAULT gen_random_uuid()::text;
    ALTER TABLE headrace_cluster_groups ADD COLUMN IF NOT EXISTS ack text NOT NULL DEFAULT 'in_sync';
    CREATE TABLE IF NOT EXISTS headrace_cluster_replicas (
        cluster text NOT NULL,
        name text NOT NULL,
        replica text NOT NULL,
        store text NOT NULL,
        logs text[] NOT NULL,
        epochs bigint[] NOT NULL,
        ends bigint[] NOT NULL,
        reported_at timestamptz NOT NULL,
        level bigint NOT NULL DEFAULT 0,
        level_at timestamptz,
        CONSTRAINT pk_headrace_cluster_replicas PRIMARY KEY (cluster, name, replica)
    );
    ALTER TABLE headrace_cluster_replicas ADD COLUMN IF NOT EXISTS level bigint NOT NULL DEFAULT 0;
    ALTER TABLE headrace_cluster_replicas ADD COLUMN IF NOT EXISTS level_at timestamptz;
END
$$
