"""`headrace token`: tokens for clients of the HTTP gateway."""

from pathlib import Path
from typing import Annotated

import typer

from headrace._runtime.private_files import make_folder, open_new
from headrace.errors import HeadraceError

__all__ = ["commands"]

commands = typer.Typer(help="Tokens for clients of the HTTP gateway.", no_args_is_help=True)


@commands.callback()
def _group() -> None:
    """Tokens for clients of the HTTP gateway."""


@commands.command()
def make(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The principal: a person or a program.")
    ],
    *,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="A role of this principal; repeatable."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="Add the line to this file, and print the token alone.",
        ),
    ] = None,
) -> None:
    """Make a token: print it once, and the line with its hash for the file of tokens.

    A second token of the same principal replaces none: remove the line of the old one yourself.
    """
    # The help text must not wait for it.
    from headrace.access.principal import Principal
    from headrace.access.tokens import new_token, token_line

    token = new_token()
    try:
        line = token_line(Principal(name, frozenset(role or ())), token)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if tokens is not None:
        _add(tokens, line)
        typer.echo(f"a running gateway takes {tokens} within 10 s; the token of {name}:", err=True)
        typer.echo(token)
        return
    typer.echo(
        f"the first line is the token: give it to {name}, it is not shown again; the second line is for"
        " the file of `headrace run --tokens FILE`",
        err=True,
    )
    typer.echo(f"{token}\n{line}")


def _add(path: Path, line: str) -> None:
    """Adds a line to the file in one write; the file is made if there is none."""
    from headrace.access.tokens import Tokens

    try:
        make_folder(path.parent)
        if not path.exists():
            open_new(path, "xb").close()
        before = path.read_text(encoding="utf-8")
        added = f"{'' if not before or before.endswith(chr(10)) else chr(10)}{line}\n"
        Tokens.parse(before + added)
        with path.open("a", encoding="utf-8") as file:
            file.write(added)
    except (ValueError, OSError) as error:
        raise HeadraceError(f"{path} cannot take a token: {error}") from error
