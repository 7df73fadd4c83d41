"""
Which queue of a topic holds a routing key.

The rule is part of the wire contract: every client in every language, and the broker when it
delivers a scheduled message, must put one key into the same queue. It is the CRC-32C (Castagnoli)
of the key's UTF-8 bytes, modulo the topic's number of queues.

Sits between: whoever chooses a queue (`client.routing`, `broker.scheduler`) and nothing. Pure.
"""

import google_crc32c

__all__ = ["queue_for_key"]


def queue_for_key(key: str, queues: int) -> int:
    """The queue that holds a routing key: CRC-32C of its UTF-8 bytes modulo the queue count."""
    return int(google_crc32c.value(key.encode())) % queues
