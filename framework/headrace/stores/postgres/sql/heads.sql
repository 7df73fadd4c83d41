-- The stored version of each given aggregate; NULL where it has none.
-- Binds: aggregate_ids (varchar[])
SELECT ids.aggregate_id,
       (
           SELECT max(stored.version)
           FROM event_streams AS stored
           WHERE stored.aggregate_id = ids.aggregate_id
       ) AS version
FROM unnest(CAST(:aggregate_ids AS varchar[])) AS ids (aggregate_id)
