"""
A live projection as a structured-streaming job.

Reads the event topic; keeps a live generation up to date.
"""
