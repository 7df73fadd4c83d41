"""
The rules: when is something wrong, how bad is it, and what is said of it.

Used by the watcher, by the command line and by the file for Prometheus, which is made of them.
"""
