"""
What both SQL adapters share: engines, schema, tables, statements.

Used by the SQLite and PostgreSQL adapters and, below the read models, by projections.
"""
