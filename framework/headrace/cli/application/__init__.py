"""
The commands that run an application and show its data.

Used by developers and operators of an application.
"""
