"""
Compaction: keeps the newest record of each key.

Used by `message_store` and the broker. Reads and rewrites the sealed segments of a log.
"""
