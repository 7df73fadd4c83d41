"""
Who sends commands and reads rows, and what they may: principals with roles.

Reads top to bottom: `principal` (a name and roles) -> `tokens` (the file of tokens) -> `allowances` (what
roles may do).

Used by the gateway, which finds out who a client is, by the bus, which hands it on with a command, by the
command service, which asks what it may do, and by handlers, which see it.
"""
