-- How this database holds text.
SHOW server_encoding
