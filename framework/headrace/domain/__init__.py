"""
Values and rules: messages, aggregates, streams of events, the registry of names.

Used by the user's domain code and by everything that stores or moves its decisions. Pure.
"""
