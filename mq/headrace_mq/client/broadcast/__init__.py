"""
Broadcast consumers: every queue of a topic, with offsets in a local file.

Used by `consumer`. Joins no group.
"""
