-- Holds log $1 of store $2 until the transaction ends; no row if its position is not $3.
SELECT position
FROM archive_logs
WHERE log = $1 AND store_id = $2 AND position = $3
FOR UPDATE
