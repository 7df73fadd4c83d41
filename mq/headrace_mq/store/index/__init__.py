"""
Where the batches of a queue are: by offset, by time, by producer.

Sits between: a log and the index files next to its segments.
"""
