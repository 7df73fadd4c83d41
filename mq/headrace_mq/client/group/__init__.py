"""
A consumer's membership in its group: join, rebalance, allocate, lock.

Used by `consumer`; the broker keeps the group.
"""
