-- What the brokers of group $2 of cluster $1 reported last, and how many milliseconds ago.
SELECT
    replica, store, logs, epochs, ends,
    greatest(0, extract(epoch FROM clock_timestamp() - reported_at) * 1000)::bigint AS age_ms
FROM headrace_cluster_replicas
WHERE cluster = $1 AND name = $2
ORDER BY replica
