"""
The transport's port and its adapters.

Sits between: bus, command service, projections and process managers on one side and a message
queue on the other. Knows nothing of commands or events: bodies are bytes.
"""
