"""
A producer and a reader for programs without an event loop.

Used by scripts, notebooks and Spark tasks.
"""
