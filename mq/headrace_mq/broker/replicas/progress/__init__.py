"""
How far the replicas of a leader are: which of them are behind, since when, and what of the acknowledged messages they lack.

Used by `broker.replicas.followers`.
"""
