"""
What both SQL adapters share: engines, schema, tables, statements.

Sits between: the SQLite and PostgreSQL adapters and SQLAlchemy.
"""
