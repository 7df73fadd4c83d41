"""
What a projection is: a row, its key, and the rules that fold events into it. PURE.

Used by applications, which define projections, and by live runners and rebuilds, which run them.
"""
