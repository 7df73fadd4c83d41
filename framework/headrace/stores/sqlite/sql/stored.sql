-- What commands have stored.
-- Binds: pairs (a JSON array of arrays of two texts: aggregate id, command id)
SELECT stored.position, stored.aggregate_id, stored.aggregate_type, stored.version,
       stored.command_id, stored.body, stored.checksum
FROM json_each(:pairs) AS pairs
JOIN event_streams AS stored
  ON stored.aggregate_id = json_extract(pairs.value, '$[0]')
 AND stored.command_id = json_extract(pairs.value, '$[1]')
