"""
Fetches: how a filtered one scans a backlog, and how an empty one waits.

Used by the request handlers; uses the store.
"""
