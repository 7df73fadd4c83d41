"""
The rooms of `headrace alarms`: rules, and what watches them.

Used by the command line; `headrace.alarms` does the work.
"""
