"""
Finds the batches of a queue: by offset, by time, by producer.

Used by `log`, by compaction and by checks. Reads and writes the index files next to the segments.
"""
