"""
Read models: event batches folded into rows, exactly once, with their offsets.

Sits between: the event topic and the tables that applications read.
"""
