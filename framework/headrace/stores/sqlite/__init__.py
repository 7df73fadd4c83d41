"""
The event store in one SQLite file: the default that needs no server.

Implements the `EventStore` port on SQLite. It knows nothing of PostgreSQL.
"""
