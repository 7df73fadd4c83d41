"""
The event store in memory: the reference adapter.

Implements the ports in this process's memory.
"""
