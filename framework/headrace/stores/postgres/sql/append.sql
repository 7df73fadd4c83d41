-- Appends a batch whole, in its order, or changes nothing.
--
-- "turn" makes writers take turns until their commit, so that positions appear in the order in
-- which they are handed out and no reader sees a gap that is filled later. It is taken below the
-- sort, hence before the first position. The statement's view of the table may be older than its
-- turn: then a constraint objects or the heads do not match, and the caller looks again. The heads
-- are looked up one by one, because a plan made while the table was small and kept since would
-- otherwise read the whole table.
--
-- Binds: turn (bigint), head_ids (varchar[]) and head_versions (bigint[]): the stored version that
-- each aggregate must have; aggregate_ids, aggregate_types, command_ids (varchar[]),
-- versions (bigint[]), recorded_ats (timestamptz[]), bodies (text[]), checksums (bigint[]): a row for
-- each stream
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(:turn)
),
wrong_heads AS (
    SELECT 1
    FROM unnest(CAST(:head_ids AS varchar[]), CAST(:head_versions AS bigint[]))
        AS head (aggregate_id, version)
    WHERE head.version <> coalesce(
        (
            SELECT max(stored.version)
            FROM event_streams AS stored
            WHERE stored.aggregate_id = head.aggregate_id
        ),
        0
    )
)
INSERT INTO event_streams
    (aggregate_id, aggregate_type, version, command_id, recorded_at, body, checksum)
SELECT batch.aggregate_id, batch.aggregate_type, batch.version, batch.command_id,
       batch.recorded_at, batch.body, batch.checksum
FROM turn,
    unnest(
        CAST(:aggregate_ids AS varchar[]),
        CAST(:aggregate_types AS varchar[]),
        CAST(:versions AS bigint[]),
        CAST(:command_ids AS varchar[]),
        CAST(:recorded_ats AS timestamptz[]),
        CAST(:bodies AS text[]),
        CAST(:checksums AS bigint[])
    ) WITH ORDINALITY
        AS batch (
            aggregate_id, aggregate_type, version, command_id, recorded_at, body, checksum, place
        )
WHERE NOT EXISTS (SELECT 1 FROM wrong_heads)
ORDER BY batch.place
