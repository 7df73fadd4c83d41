-- Holds log $1 of store $2 until the transaction ends; no row if its position is not $3, or its epoch not $4.
SELECT position
FROM archive_logs
WHERE log = $1 AND store_id = $2 AND position = $3 AND epoch = $4
FOR UPDATE
