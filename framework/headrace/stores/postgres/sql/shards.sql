-- How many parts the table of streams has; 0: it is one plain table.
-- Binds: none
SELECT count(*) FROM pg_inherits WHERE inhparent = CAST('event_streams' AS regclass)
