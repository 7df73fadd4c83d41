"""
The files of a log: segments, block files, checkpoints, and a walk through their entries.

Sits between: the logs and the file system.
"""
