"""
What may be deleted, and how much time has really passed. PURE.

Sits between: the broker's timer and the logs.
"""
