"""
The event store in one SQLite file: the default that needs no server.

Sits between: the `EventStore` port and SQLite. Knows nothing of PostgreSQL.
"""
