-- Drops what broker $3 of group $2 of cluster $1 reported.
DELETE FROM headrace_cluster_replicas
WHERE cluster = $1 AND name = $2 AND replica = $3
