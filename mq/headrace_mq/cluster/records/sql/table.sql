-- Makes the table of the groups, unless it is there; binds nothing.
CREATE TABLE IF NOT EXISTS headrace_cluster_groups (
    cluster text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    leader text NOT NULL,
    in_sync_names text[] NOT NULL,
    in_sync_stores text[] NOT NULL,
    CONSTRAINT pk_headrace_cluster_groups PRIMARY KEY (cluster, name)
)
