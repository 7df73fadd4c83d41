"""
How far a job of Spark is, while it runs: the bytes that it has read, and the queues that are finished.

Used by rebuilds; works with Spark's driver, and with the tasks that tell it.
"""
