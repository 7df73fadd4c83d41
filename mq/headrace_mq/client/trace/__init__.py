"""
The trace of a message after it was stored: delivered, handled, acknowledged, failed.

Used by `consumer`; writes to the trace topic.
"""
