-- The streams of aggregates between two versions of each, without rejections; looked up one by one.
-- Binds: aggregate_ids (varchar[]), after and up_to (bigint[]), all of one length
SELECT stored.position, stored.aggregate_id, stored.aggregate_type, stored.version,
       stored.command_id, stored.body, stored.checksum
FROM unnest(
    CAST(:aggregate_ids AS varchar[]), CAST(:after AS bigint[]), CAST(:up_to AS bigint[])
) AS ranges (aggregate_id, after, up_to),
    LATERAL (
        SELECT *
        FROM event_streams
        WHERE event_streams.aggregate_id = ranges.aggregate_id
          AND event_streams.version > ranges.after
          AND event_streams.version <= ranges.up_to
        ORDER BY event_streams.version
        OFFSET 0
    ) AS stored
ORDER BY stored.aggregate_id, stored.version
