"""
What the two journals of the broker share: their log, the batches in it, and the worker that follows it.

Used by the schedule and the transactions; uses the store.
"""
