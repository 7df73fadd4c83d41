"""
Resources: what handlers get besides a message and its context, opened and closed with the application.

Used by `App` and by all that have handlers; uses settings and the log.
"""
