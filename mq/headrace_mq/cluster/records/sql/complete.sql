-- Whether the table of the groups is there, and whether the tables have everything that `table` makes; binds nothing.
SELECT
    to_regclass('headrace_cluster_groups') IS NOT NULL AS is_there,
    (
        SELECT count(*) FROM pg_attribute
        WHERE
            attrelid = to_regclass('headrace_cluster_groups') AND attname IN ('unclean', 'lossy', 'group_id', 'ack')
            AND NOT attisdropped
    ) = 4 AND (
        SELECT count(*) FROM pg_attribute
        WHERE
            attrelid = to_regclass('headrace_cluster_replicas') AND attname IN ('level', 'level_at')
            AND NOT attisdropped
    ) = 2 AS is_complete
