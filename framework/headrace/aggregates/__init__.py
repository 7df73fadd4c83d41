"""
Bringing an aggregate back: from memory, or from its events.

Sits between: `commands`, which asks for aggregates, and the event store. Never decides, never
appends.
"""
