"""
Topics: their queues, their retention, and the disk that they fill.

Used by the request handlers; uses the store.
"""
