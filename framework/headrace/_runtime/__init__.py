"""
Clock, ids, tasks: what the framework asks of the machine besides storage and messages.

Sits between: every other package and the operating system. Knows nothing of events.
"""
