-- The revision of the archive's schema.
SELECT version_num
FROM headrace_archive_schema
