-- Makes group $2 of cluster $1, led by $3, with the members $4 and their disks $5, in epoch $6, unless it is there.
INSERT INTO headrace_cluster_groups (cluster, name, version, epoch, leader, in_sync_names, in_sync_stores)
VALUES ($1, $2, 1, $6, $3, $4, $5)
ON CONFLICT ON CONSTRAINT pk_headrace_cluster_groups DO NOTHING
