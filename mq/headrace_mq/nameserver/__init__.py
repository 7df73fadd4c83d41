"""
A name server: tells clients where the brokers are, by what the brokers say every second.

Reads top to bottom: `process` (signals, event loop) -> `name_server` (listens, answers) -> `metrics` -> `route_table`
(which brokers there are; pure).

It keeps nothing on the disk, and name servers do not know each other. Used by the command line; uses the sockets of `_net`
and the login of `broker.users`.
"""
