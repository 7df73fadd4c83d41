"""`headrace archive`: creates and checks the tables of a broker's archive in PostgreSQL."""

import asyncio
from typing import Annotated

import typer

__all__ = ["commands"]

commands = typer.Typer(help="A broker's archive in PostgreSQL.", no_args_is_help=True)

Url = Annotated[
    str, typer.Option("--url", envvar="HEADRACE_ARCHIVE", help="postgresql://USER@HOST/DATABASE.")
]


@commands.command()
def upgrade(
    *, url: Url, revision: Annotated[str, typer.Option(help="Where to stop.")] = "head"
) -> None:
    """Make the archive's tables, or bring them up to this version."""
    from headrace.stores.database.schema import ARCHIVE
    from headrace.stores.database.schema import upgrade as upgrade_schema

    asyncio.run(upgrade_schema(url, revision, tree=ARCHIVE))
    typer.echo("the archive is up to date" if revision == "head" else f"it is at {revision}")


@commands.command()
def check(*, url: Url) -> None:
    """Say whether the archive's tables fit this version; exit status 2 if they do not."""
    from headrace.stores.database.schema import ARCHIVE
    from headrace.stores.database.schema import check as check_schema

    asyncio.run(check_schema(url, tree=ARCHIVE))
    typer.echo("the archive is up to date")
