-- The messages of topic $1 with key $2: from log position $3 to before $4, stored from $5 to before
-- $6, the first $7 in the order of the log.
SELECT queue_id, queue_offset, log_position, sequence, records, batch, key, tag, headers, body,
       born_at_ms, stored_at_ms, producer_id, producer_epoch, epoch, flags
FROM archived_records
WHERE topic = $1 AND key = $2 AND key <> ''
  AND log_position >= $3 AND log_position < $4
  AND stored_at_ms >= $5 AND stored_at_ms < $6
ORDER BY log_position, queue_offset
LIMIT $7
