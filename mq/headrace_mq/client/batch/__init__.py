"""
Batches that are sent: messages in columns, their size, and how a batch is divided.

Sits between: the send buffer and the wire.
"""
