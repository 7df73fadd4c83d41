"""
Checks that event store, event topic and readers belong together, and repairs the topic.

Used by `App` before readers begin; reads the identities of store and topic.
"""
