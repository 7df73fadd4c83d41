"""
The trace of a message after it was stored: delivered, handled, acknowledged, failed.

Sits between: a consumer and the trace topic.
"""
