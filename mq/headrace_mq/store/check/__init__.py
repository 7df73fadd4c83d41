"""
Checks, repairs and tries out a data directory; never part of a running broker.

Used by the command line. Reads the files of a store.
"""
