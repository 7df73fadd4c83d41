-- Ends the sessions that hold what session $1 waits for, if their names are like $2 and this role may; returns all of them.
SELECT pid, usename, application_name,
       CASE WHEN application_name LIKE $2 AND pg_has_role(usesysid, 'USAGE')
            THEN pg_terminate_backend(pid)
            ELSE false
       END AS ended
FROM pg_stat_activity
WHERE pid = ANY(pg_blocking_pids($1))
