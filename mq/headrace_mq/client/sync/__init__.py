"""
A producer and a reader for programs without an event loop.

Sits between: scripts, notebooks or Spark tasks, and a broker.
"""
