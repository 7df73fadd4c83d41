"""
Compaction: keeps the newest record of each key.

Sits between: `message_store` and the sealed segments of a log.
"""
