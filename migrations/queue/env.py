"""
How alembic runs the migrations of the queue's archive: on a connection that it is handed over.

`headrace archive upgrade` does. The tables are PostgreSQL's alone.
"""

from alembic import context

# Not the name of the event store's: both may be in one database.
VERSION_TABLE = "headrace_archive_schema"

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
with context.begin_transaction():
    context.run_migrations()
