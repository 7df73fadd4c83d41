-- The encoding of this database.
SHOW server_encoding
