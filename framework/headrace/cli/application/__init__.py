"""
The commands that run an application and look at its data.

Used by an operator of an application; uses its databases.
"""
