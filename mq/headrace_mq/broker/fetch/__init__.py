"""
Fetches: how a filtered one scans a backlog, and how an empty one waits.

Sits between: the request handlers and the store.
"""
