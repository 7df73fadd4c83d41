"""
The event store in a PostgreSQL database, for several processes and machines.

Sits between: the `EventStore` port and PostgreSQL. Knows nothing of SQLite.
"""
