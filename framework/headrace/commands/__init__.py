"""
From a command message to its answer.

Sits between: the command topic and `aggregates`, `events` and the bus's replies. Knows no
database and no broker, only their ports.
"""
