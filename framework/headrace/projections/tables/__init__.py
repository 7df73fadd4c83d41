"""
Where read models are kept: generations of tables, their rows, versions and offsets.

Used by live runners and rebuilds, which write, and by queries, which read.
"""
