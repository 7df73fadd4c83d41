-- Appends streams in their order if the version before the first one of each aggregate is stored;
-- changes no row otherwise. A stream that comes too late violates a constraint. A rejection
-- (version NULL) needs no place in the order of versions.
-- Places: one of NULL counts for nothing, because there are statements for a few sizes only.
-- Binds: rows (aggregate_id, aggregate_type, version, command_id, recorded_at, body,
--        checksum),
--        heads (aggregate_id, version that must be stored)
INSERT INTO event_streams
    (aggregate_id, aggregate_type, version, command_id, recorded_at, body, checksum)
SELECT column1, column2, column3, column4, column5, column6, column7
FROM (VALUES {rows})
WHERE column1 IS NOT NULL
  AND NOT EXISTS (
          SELECT 1
          FROM (VALUES {heads}) AS heads
          WHERE heads.column1 IS NOT NULL
            AND NOT EXISTS (
                    SELECT 1
                    FROM event_streams
                    WHERE aggregate_id = heads.column1 AND version = heads.column2
                )
      )
