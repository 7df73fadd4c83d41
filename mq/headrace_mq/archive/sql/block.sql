-- The messages of queue $2 of topic $1 from offset $3 on: at most $4 rows; all but the last have less than $5 bytes.
-- Begins with the last row at or before $3: it may hold a whole batch that includes $3.
SELECT queue_offset, log_position, sequence, records, batch, key, tag, headers, body,
       born_at_ms, stored_at_ms, producer_id, producer_epoch, epoch, flags
FROM (
    SELECT held.*,
           sum(size) OVER (ORDER BY queue_offset ROWS UNBOUNDED PRECEDING) - size AS bytes_before
    FROM (
        SELECT *,
               octet_length(body) + octet_length(key) + octet_length(tag)
               + pg_column_size(headers) + coalesce(octet_length(batch), 0) AS size
        FROM archived_records
        WHERE topic = $1 AND queue_id = $2
          AND queue_offset >= coalesce(
              (SELECT max(before.queue_offset) FROM archived_records AS before
               WHERE before.topic = $1 AND before.queue_id = $2 AND before.queue_offset <= $3),
              $3)
        ORDER BY queue_offset
        LIMIT $4
    ) AS held
) AS counted
WHERE bytes_before < $5
ORDER BY queue_offset
