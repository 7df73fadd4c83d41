"""
The event store: its port and the adapters for memory, SQLite and PostgreSQL.

Sits between: the command side, which appends and loads, and the databases. Also the ground that
read models stand on: `database.engines` opens a database, `database.schema` brings its tables up to date, `database.tables`
says what they look like. Knows nothing of topics, aggregates' rules or projections' folds.
"""
