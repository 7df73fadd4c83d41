"""
Which batches may hold a key.

Sits between: a log and the key files next to its segments.
"""
