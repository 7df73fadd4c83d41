-- How far each log is archived, of which broker's store it is, and in which epochs it was written.
SELECT log, store_id, position, epoch, epochs
FROM archive_logs
