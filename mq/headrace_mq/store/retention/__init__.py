"""
What may be deleted, and how much time has really passed. PURE.

Used by the broker's timer, which asks before the logs delete segments.
"""
