-- Moves messages from log position $3 on to the lost ones: those of topics $1, and of topics that are not $2 from epoch $4 on.
-- $5 is the epoch of the leader that lacks them.
WITH moved AS (
    DELETE FROM archived_records
    WHERE log_position >= $3
      AND (topic = ANY($1::text[]) OR (NOT topic = ANY($2::text[]) AND epoch >= $4))
    RETURNING *
),
kept AS (
    INSERT INTO archived_lost SELECT moved.*, $5::bigint, now() FROM moved
)
SELECT count(*) FROM moved
