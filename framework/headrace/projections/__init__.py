"""
Read models: event batches folded into rows, exactly once, with their offsets.

Reads the event topic; writes the tables that applications read.
"""
