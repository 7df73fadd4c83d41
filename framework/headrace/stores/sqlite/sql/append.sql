-- Appends one stream if the version before its own is stored; changes no row otherwise.
-- A stream that comes too late violates a constraint. A rejection (version NULL) needs no place in
-- the order of versions.
-- Binds: aggregate_id, aggregate_type, version, command_id, recorded_at, body
INSERT INTO event_streams
    (aggregate_id, aggregate_type, version, command_id, recorded_at, body)
SELECT :aggregate_id, :aggregate_type, :version, :command_id, :recorded_at, :body
WHERE :version IS NULL
   OR :version = 1
   OR EXISTS (
          SELECT 1
          FROM event_streams
          WHERE aggregate_id = :aggregate_id AND version = :version - 1
      )
