"""
From decided to durable to published.

Sits between: `commands`, which decides, and the event store and the event topic. Never runs a
handler, never answers a caller.
"""
