"""
Broadcast consumers: every queue of a topic, with offsets in a local file.

Sits between: a consumer and the file system. Joins no group.
"""
