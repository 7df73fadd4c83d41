"""
Values and rules: messages, aggregates, streams of events, the registry of names.

Sits between: the user's domain code and everything that stores or moves what it decides. Pure.
"""
