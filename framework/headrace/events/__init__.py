"""
From decided to durable to published.

Used by `commands`, which decides; uses the event store and the event topic. It never runs a
handler, never answers a caller.
"""
