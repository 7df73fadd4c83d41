"""
The event store in one SQLite file: the default, which needs no server.

Implements the `EventStore` port.
"""
