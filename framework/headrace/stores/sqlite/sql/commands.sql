-- Those of the given (aggregate id, command id) pairs that are stored.
-- Binds: pairs (a JSON array of arrays of two texts)
SELECT stored.aggregate_id, stored.command_id
FROM json_each(:pairs) AS pairs
JOIN event_streams AS stored
  ON stored.aggregate_id = json_extract(pairs.value, '$[0]')
 AND stored.command_id = json_extract(pairs.value, '$[1]')
