"""
Who a client of the gateway is, and what it gets to see.

Reads top to bottom: `door` (before every endpoint) -> `authentication` (from a header to a principal)
-> `token_file` (the tokens, read again when they change) -> `caller` (what endpoints know of a client)
-> `permissions` (what it may do) -> `audit` (refusals in the log).

Used by the gateway; uses `headrace.access`.
"""
