"""
Indexes of projections' tables: made with each generation, and on the table that is live.

Used by generations, rebuilds and the command line; works with SQLAlchemy.
"""
