"""
Checks, repairs and tries out a data directory; never part of a running broker.

Sits between: the command line and the files of a store.
"""
