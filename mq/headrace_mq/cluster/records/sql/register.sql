-- Keeps the report of broker $3 with disk $4 of group $2 of cluster $1: for the log $5 the epoch $6 of its last byte, and its
-- end $7, and so on; and that it knows $8 of groups. A broker of an earlier version leaves that as it is, so the time of the
-- report stands there, too. Returns the names of all brokers that have reported, in one row.
WITH reported AS (
    INSERT INTO headrace_cluster_replicas
    (cluster, name, replica, store, logs, epochs, ends, reported_at, level, level_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, statement_timestamp(), $8, statement_timestamp())
    ON CONFLICT ON CONSTRAINT pk_headrace_cluster_replicas
    DO UPDATE SET store = $4, logs = $5, epochs = $6, ends = $7, reported_at = statement_timestamp(),
    level = $8, level_at = statement_timestamp()
    RETURNING replica
)
SELECT array_agg(replica) AS names
FROM (
    SELECT replica FROM reported
    UNION
    SELECT replica FROM headrace_cluster_replicas WHERE cluster = $1 AND name = $2
) AS every
