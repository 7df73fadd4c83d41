"""`headrace db`: the schema of the event store and of the read models."""

import asyncio
from typing import Annotated

import typer

__all__ = ["commands"]

commands = typer.Typer(help="The database schema.", no_args_is_help=True)

Url = Annotated[
    str,
    typer.Option("--url", envvar="HEADRACE_EVENT_STORE", help="sqlite:///FILE or postgresql://…."),
]


@commands.command()
def upgrade(
    *, url: Url, revision: Annotated[str, typer.Option(help="Where to stop.")] = "head"
) -> None:
    """Bring a database's schema up to this version."""
    from headrace.stores.database.schema import upgrade as upgrade_schema

    before, after = asyncio.run(upgrade_schema(url, revision))
    if before == after:
        typer.echo(f"nothing to do: the schema is at {after} already")
    else:
        typer.echo(f"the schema is at {after} now" + (f"; it was at {before}" if before else ""))


@commands.command()
def downgrade(
    *, url: Url, revision: Annotated[str, typer.Option(help="Where to go back to.")]
) -> None:
    """Take a database's schema back to an older revision; `base` removes every table."""
    from headrace.stores.database.schema import downgrade as downgrade_schema

    asyncio.run(downgrade_schema(url, revision))
    typer.echo(f"the schema is at {revision}")


@commands.command()
def check(*, url: Url) -> None:
    """Say whether a database's schema fits this version; exit status 2 if it does not."""
    from headrace.stores.database.schema import check as check_schema

    asyncio.run(check_schema(url))
    typer.echo("the schema is up to date")


@commands.command()
def shard(
    *,
    url: Url,
    shards: Annotated[
        int | None, typer.Option(min=1, help="The new number of shards; 1: a plain table.")
    ] = None,
) -> None:
    """Divide the streams of a PostgreSQL database by a hash of the aggregate's id.

    Shows the number of shards. With --shards it rewrites the table, and its users wait meanwhile.
    """
    from headrace.stores.postgres.partitions import reshard, shards_of

    if shards is not None:
        asyncio.run(reshard(url, shards))
    found = asyncio.run(shards_of(url))
    typer.echo("the streams are in one table" if found == 1 else f"there are {found} shards")
