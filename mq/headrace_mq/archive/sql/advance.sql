-- Moves log $1 of store $2 from position $3 to $4; no row if its position is not $3.
UPDATE archive_logs
SET position = $4
WHERE log = $1 AND store_id = $2 AND position = $3
RETURNING position
