"""
How alembic runs these migrations: on a connection that `headrace.stores.database.schema` hands over.

Run on its own (`alembic -c migrations/alembic.ini -x url=URL …`) it opens the database itself;
that is for writing a new migration. Everybody else runs `headrace db upgrade`.
"""

import asyncio

from alembic import context
from sqlalchemy import Connection

from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import VERSION_TABLE
from headrace.stores.database.tables import metadata


def run_on(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        transactional_ddl=True,  # alembic does not expect it of SQLite, which has it
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_alone(url: str) -> None:
    engine = create_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(run_on)
    finally:
        await engine.dispose()


given = context.config.attributes.get("connection")
if given is not None:
    run_on(given)
else:
    asyncio.run(run_alone(context.get_x_argument(as_dictionary=True)["url"]))
