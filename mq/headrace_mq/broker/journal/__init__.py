"""
What the two journals of the broker share: their log, the batches in it, and the worker that follows it.

Sits between: the schedule and the transactions, and the store.
"""
