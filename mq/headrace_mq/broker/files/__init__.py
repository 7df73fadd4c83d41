"""
The broker's own small files: replaced as a whole, checked when read.

Used by the parts that keep metadata; uses the data directory.
"""
