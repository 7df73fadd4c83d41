"""
From a command message to its answer.

Reads the command topic; uses `aggregates`, `events` and the bus's replies. It knows no database and
no broker, only their ports.
"""
