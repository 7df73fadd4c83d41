-- The stored version of each given aggregate; NULL where it has none.
-- Binds: aggregate_ids (a JSON array of text)
SELECT ids.value AS aggregate_id,
       (SELECT max(version) FROM event_streams WHERE aggregate_id = ids.value) AS version
FROM json_each(:aggregate_ids) AS ids
