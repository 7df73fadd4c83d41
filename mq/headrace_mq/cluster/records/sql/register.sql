-- Keeps the report of broker $3 with disk $4 of group $2 of cluster $1: for the log $5 the epoch $6 of its last byte, and its
-- end $7, and so on. Returns the names of all brokers that have reported, in one row.
WITH reported AS (
    INSERT INTO headrace_cluster_replicas (cluster, name, replica, store, logs, epochs, ends, reported_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
    ON CONFLICT ON CONSTRAINT pk_headrace_cluster_replicas
    DO UPDATE SET store = $4, logs = $5, epochs = $6, ends = $7, reported_at = clock_timestamp()
    RETURNING replica
)
SELECT array_agg(replica) AS names
FROM (
    SELECT replica FROM reported
    UNION
    SELECT replica FROM headrace_cluster_replicas WHERE cluster = $1 AND name = $2
) AS every
