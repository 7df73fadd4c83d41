"""
A consumer's membership in its group: join, rebalance, allocate, lock.

Sits between: consumers and the broker that keeps the group.
"""
