-- Moves log $1 of store $2, which this transaction holds, to position $3, epoch $4 and epochs $5.
UPDATE archive_logs
SET position = $3, epoch = $4, epochs = $5
WHERE log = $1 AND store_id = $2
