"""
The history of an event topic in files: sealed parts, and what of the topic they may replace.

Used by the command line; writes parts as `analysis.export` does, and reads the event store.
"""
