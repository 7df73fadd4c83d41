-- The first message of queue $2 of topic $1 from offset $3 on, and when it was stored.
SELECT queue_offset, stored_at_ms
FROM archived_records
WHERE topic = $1 AND queue_id = $2 AND queue_offset >= $3
ORDER BY queue_offset
LIMIT 1
