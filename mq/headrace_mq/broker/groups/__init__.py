"""
Consumer groups: members, locks, offsets, and how far each is behind.

Used by the request handlers; uses the metadata files.
"""
