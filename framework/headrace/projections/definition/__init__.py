"""
What a projection is: a row, its key, and the rules that fold events into it. PURE.

Used by applications for definitions, and by the loops that run them.
"""
