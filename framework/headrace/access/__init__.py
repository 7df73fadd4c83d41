"""
Who sends commands and reads rows, and what they may: principals with roles.

Reads top to bottom: `principal` (a name and roles) -> `tokens` (the file of tokens).

Used by the gateway, which finds out who a client is, by the bus, which hands it on with a command, and by
handlers, which see it.
"""
