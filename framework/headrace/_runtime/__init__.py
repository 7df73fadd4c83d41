"""
Clock, ids, tasks: what the framework asks of the machine besides storage and messages.

Used by every other package; uses the operating system. It knows nothing of events.
"""
