-- Waits for this writer's turn, which lasts until its transaction ends.
-- Binds: turn (bigint)
SELECT pg_advisory_xact_lock(:turn)
