-- Begins the archive of log $1 of store $2 at position $3.
INSERT INTO archive_logs (log, store_id, position)
VALUES ($1, $2, $3)
ON CONFLICT (log) DO NOTHING
