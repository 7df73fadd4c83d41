"""
Running handlers: attempts, their order, their time limits and their failures.

Used by `consumer`. Knows no broker.
"""
