-- The streams of aggregates between two versions of each, without rejections.
-- Binds: ranges (a JSON array of arrays: aggregate id, the version to start after, the last one)
SELECT stored.position, stored.aggregate_id, stored.aggregate_type, stored.version,
       stored.command_id, stored.body, stored.checksum
FROM json_each(:ranges) AS ranges
CROSS JOIN event_streams AS stored
  ON stored.aggregate_id = json_extract(ranges.value, '$[0]')
 AND stored.version > json_extract(ranges.value, '$[1]')
 AND stored.version <= json_extract(ranges.value, '$[2]')
ORDER BY stored.aggregate_id, stored.version
