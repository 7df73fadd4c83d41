-- Keeps the identity of the event store, unless it has one; on SQLite and on PostgreSQL.
-- Binds: store_id, seal_key, made_at
INSERT INTO store_identity (number, store_id, seal_key, made_at)
VALUES (1, :store_id, :seal_key, :made_at)
ON CONFLICT (number) DO NOTHING
