-- How far each log is archived, and of which broker's store it is.
SELECT log, store_id, position
FROM archive_logs
