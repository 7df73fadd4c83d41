"""
One log: its writer, its flushes, its recovery, and the readers of its batches.

Sits between: `message_store` and the segments, with the indexes that belong to them.
"""
