-- What the brokers of group $2 of cluster $1 reported last, how many milliseconds ago, and what they know of groups.
SELECT
    replica, store, logs, epochs, ends,
    greatest(0, extract(epoch FROM clock_timestamp() - reported_at) * 1000)::bigint AS age_ms,
    CASE WHEN level_at = reported_at THEN level ELSE 0 END AS level
FROM headrace_cluster_replicas
WHERE cluster = $1 AND name = $2
ORDER BY replica
