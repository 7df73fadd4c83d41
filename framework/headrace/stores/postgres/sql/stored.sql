-- What commands have stored; looked up one by one, as the heads of an append are.
-- Binds: aggregate_ids, command_ids (varchar[], of one length)
SELECT stored.position, stored.aggregate_id, stored.aggregate_type, stored.version,
       stored.command_id, stored.body, stored.checksum
FROM unnest(CAST(:aggregate_ids AS varchar[]), CAST(:command_ids AS varchar[]))
    AS pairs (aggregate_id, command_id),
    LATERAL (
        SELECT *
        FROM event_streams
        WHERE event_streams.aggregate_id = pairs.aggregate_id
          AND event_streams.command_id = pairs.command_id
        LIMIT 1
    ) AS stored
