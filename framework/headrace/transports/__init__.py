"""
The transport's port and its adapters.

Used by the bus, the command service and the readers of events; uses a message queue. Knows nothing of
commands or events: bodies are bytes.
"""
