"""
From a command message to its answer.

Sits between: the command topic and `_loading`, `_eventing` and the bus's replies. Knows no
database and no broker, only their ports.
"""
