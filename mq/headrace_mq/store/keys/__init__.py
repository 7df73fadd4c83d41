"""
Finds the batches that may hold a key.

Used by a log. Reads and writes the key files next to its segments.
"""
