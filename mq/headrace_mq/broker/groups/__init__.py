"""
Consumer groups: members, locks, offsets, and how far each is behind.

Sits between: the request handlers and the metadata files.
"""
