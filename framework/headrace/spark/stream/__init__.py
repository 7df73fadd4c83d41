"""
A live projection as a structured-streaming job.

Sits between: the event topic and a live generation.
"""
