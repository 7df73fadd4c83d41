"""
Decides which segments may be deleted, and how much time has really passed. PURE.

Used by the broker's timer before it deletes segments.
"""
