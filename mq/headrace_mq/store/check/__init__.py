"""
Checks and repairs a data directory, and tests its disk; a running broker never uses it.

Used by the command line. Reads the files of a store.
"""
