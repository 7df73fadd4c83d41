"""
Batches that are sent: messages in columns, their size, and how a batch is divided.

Used by `producer` and `transactions`.
"""
