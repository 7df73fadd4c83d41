"""
Where read models are kept: generations of tables, their rows, versions and offsets.

Sits between: the loops that fold and the database.
"""
