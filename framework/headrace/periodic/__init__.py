"""
Periodic commands: one for each occurrence of a time table, with an id made of it.

Used by `App`; uses the command bus, and the event store to see which occurrences are done.
"""
