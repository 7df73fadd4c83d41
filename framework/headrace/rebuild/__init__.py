"""
Rebuilding read models next to the live ones: what each engine does, and the switch at the end.

Used by the command line; uses the event topic and the event store.
"""
