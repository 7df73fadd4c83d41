"""
Filters applied to stored batches, without decoding the messages that do not match.

Sits between: a subscription's condition and the bytes of a batch. PURE.
"""
