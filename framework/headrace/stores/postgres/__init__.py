"""
The event store in a PostgreSQL database, for several processes and machines.

Implements the `EventStore` port.
"""
