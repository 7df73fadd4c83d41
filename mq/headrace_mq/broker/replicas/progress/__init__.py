"""
How far the replicas of a leader are: which of them are behind, since when, and what of the acknowledged messages they lack.

A leader that ends its term in order waits for them.

Used by `broker.replicas.followers` and `replicated_broker`.
"""
