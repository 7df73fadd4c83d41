-- Whether the table of the groups is there, and whether the tables have everything that `table` makes; binds nothing.
SELECT
    to_regclass('headrace_cluster_groups') IS NOT NULL AS is_there,
    to_regclass('headrace_cluster_replicas') IS NOT NULL AND (
        SELECT count(*) FROM pg_attribute
        WHERE
            attrelid = to_regclass('headrace_cluster_groups') AND attname IN ('unclean', 'lossy', 'group_id')
            AND NOT attisdropped
    ) = 3 AS is_complete
