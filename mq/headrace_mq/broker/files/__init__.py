"""
The broker's own small files: replaced as a whole, checked when read.

Sits between: the parts that keep metadata and the data directory.
"""
