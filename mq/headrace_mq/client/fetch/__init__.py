"""
Receiving: the assigned queues, their fetches, and the records that wait to be handled.

Used by `consumer` and `broadcast`. Knows no handler.
"""
