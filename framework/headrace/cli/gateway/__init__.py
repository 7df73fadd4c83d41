"""
The command line of the HTTP gateway: tokens for its clients.

Used by `headrace.cli`.
"""
