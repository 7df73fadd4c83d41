-- The record of group $2 of cluster $1; no row if there is none.
SELECT version, epoch, leader, in_sync_names, in_sync_stores, unclean, lossy, group_id, ack
FROM headrace_cluster_groups
WHERE cluster = $1 AND name = $2
