"""
The event store in memory: the reference adapter.

Sits between: the port and this process's memory.
"""
