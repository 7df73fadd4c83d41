-- Keeps the snapshot of an aggregate, in place of an older one or one of another state version; on
-- SQLite and on PostgreSQL.
-- Binds: aggregate_id, aggregate_type, version, state_version, body
INSERT INTO snapshots (aggregate_id, aggregate_type, version, state_version, body)
VALUES (:aggregate_id, :aggregate_type, :version, :state_version, :body)
ON CONFLICT (aggregate_id) DO UPDATE SET
    aggregate_type = excluded.aggregate_type,
    version = excluded.version,
    state_version = excluded.state_version,
    body = excluded.body
WHERE snapshots.version < excluded.version
   OR snapshots.state_version <> excluded.state_version
