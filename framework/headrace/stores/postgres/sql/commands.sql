-- Those of the given (aggregate id, command id) pairs that are stored; looked up one by one, as the
-- heads of an append are.
-- Binds: aggregate_ids, command_ids (varchar[], of one length)
SELECT pairs.aggregate_id, pairs.command_id
FROM unnest(CAST(:aggregate_ids AS varchar[]), CAST(:command_ids AS varchar[]))
    AS pairs (aggregate_id, command_id)
WHERE (
    SELECT stored.position
    FROM event_streams AS stored
    WHERE stored.aggregate_id = pairs.aggregate_id AND stored.command_id = pairs.command_id
) IS NOT NULL
