"""
Bringing an aggregate back: from memory, or from its events.

Used by `commands`, which asks for aggregates; uses the event store. It never decides, never
appends.
"""
