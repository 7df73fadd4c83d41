"""
Whether event store, event topic and readers belong together, and what heals them.

Sits between: the readers of one application and the identities of what they read.
"""
