-- Changes group $2 of cluster $1 from version $3 to epoch $4, leader $5, members $6 and their disks $7, and the epoch $8 of a
-- promotion with loss; no row if its version
-- is another one, or its epoch is later, or its id is not $9, which may be empty. Who acknowledges is $10 then, or as before
-- where it is empty. An election loses what leaders acknowledged alone, unless the new leader has everything ($11), or
-- is the old one with the same disk.
UPDATE headrace_cluster_groups
SET version = version + 1, epoch = $4, leader = $5, in_sync_names = $6, in_sync_stores = $7, unclean = $8,
    lossy = greatest(
        lossy, unclean, $8,
        CASE
            WHEN $4 <= epoch OR ack = 'in_sync' OR $11 THEN 0
            WHEN
                leader = $5
                AND in_sync_stores[array_position(in_sync_names, leader)]
                = ($7::text[])[array_position($6::text[], leader)]
                THEN 0
            ELSE $4
        END
    ),
    ack = coalesce(nullif($10, ''), ack)
WHERE cluster = $1 AND name = $2 AND version = $3 AND epoch <= $4 AND $9 IN ('', group_id)
RETURNING version, epoch, leader, in_sync_names, in_sync_stores, unclean, lossy, group_id, ack
