"""
The commands that run an application and look at its data.

Sits between: an operator and an application's databases.
"""
