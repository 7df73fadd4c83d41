"""
Filters applied to stored batches, without decoding the messages that do not match.

Used by the broker's FETCH and by consumers; uses `filters`. Pure.
"""
