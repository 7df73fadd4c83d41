"""
Registration: the functions that you register with an application.

Used by `App`, which is made of it; uses what it registers.
"""
