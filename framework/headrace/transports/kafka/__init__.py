"""
Kafka as the queue: the transport's port over a cluster that you already run.

Used by `transports.open`, which needs the extra `headrace[kafka]` for it. `docs/kafka.md` says what
differs from the built-in queue.
"""
