"""
The files of a log: segments, block files, checkpoints, and a walk through their entries.

Used by the logs, the indexes and the checks. Reads and writes files.
"""
