"""
Where read models are kept: generations of tables, their rows, versions and offsets.

Used by the loops that fold; uses the database.
"""
