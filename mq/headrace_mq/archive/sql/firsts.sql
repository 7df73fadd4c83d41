-- The first archived message of each of the queues $2 of topics $1.
SELECT asked.topic, asked.queue_id, held.queue_offset
FROM unnest($1::text[], $2::integer[]) AS asked (topic, queue_id)
CROSS JOIN LATERAL (
    SELECT queue_offset
    FROM archived_records
    WHERE topic = asked.topic AND queue_id = asked.queue_id
    ORDER BY queue_offset
    LIMIT 1
) AS held
