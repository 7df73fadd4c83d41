-- Changes group $2 of cluster $1 from version $3 to epoch $4, leader $5, members $6 and their disks $7, and the epoch $8 of a
-- promotion with loss; no row if its version
-- is another one, or its epoch is later, or its id is not $9, which may be empty.
UPDATE headrace_cluster_groups
SET version = version + 1, epoch = $4, leader = $5, in_sync_names = $6, in_sync_stores = $7, unclean = $8,
    lossy = greatest(lossy, unclean, $8)
WHERE cluster = $1 AND name = $2 AND version = $3 AND epoch <= $4 AND $9 IN ('', group_id)
RETURNING version, epoch, leader, in_sync_names, in_sync_stores, unclean, lossy, group_id
