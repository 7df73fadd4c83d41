"""
One log: its writer, its flushes, its recovery, and the readers of its batches.

Used by `message_store`. Reads and writes segments, and the indexes that belong to them.
"""
