"""
What a projection is: a row, its key, and the rules that fold events into it. PURE.

Sits between: an application's definitions and the loops that run them.
"""
