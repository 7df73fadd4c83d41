"""
`headrace aggregate`: which aggregates an event store has, and what they were.

Used by operators of an application.
"""
