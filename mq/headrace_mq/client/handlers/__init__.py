"""
Running handlers: attempts, their order, their time limits and their failures.

Sits between: records and the application's handlers. Knows no broker.
"""
