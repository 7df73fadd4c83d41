"""
Topics: their queues, their retention, and the disk that they fill.

Sits between: the request handlers and the store.
"""
