"""
Who a client of the gateway is, and what it gets to see.

Reads top to bottom: `door` (before every endpoint) -> `authentication` (from a header to a principal)
-> `token_file` (the tokens, read again when they change) | `signed_tokens` (those of an issuer) -> `key_set`
(its keys) -> `refusals` (why a client is not let in). Of one that is: `permissions` (what it may do) -> `caller`
(who it is) -> `audit` (refusals in the log).

Used by the gateway; uses `headrace.access`.
"""
