"""`headrace subject`: lists the subjects of personal fields, and forgets them."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import AppPath
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # the application is loaded by the functions that need it
    from headrace.app import App

__all__ = ["commands"]

commands = typer.Typer(help="Subjects of personal fields.", no_args_is_help=True)

_FORMAT = "%Y-%m-%d %H:%M:%S"


@commands.command("list")
def list_subjects(
    *,
    app: AppPath,
    forgotten: Annotated[
        bool, typer.Option("--forgotten", help="Only those that were forgotten.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON per subject.")] = False,
) -> None:
    """List the subjects that have a key, and those that were forgotten."""
    from headrace.app import load_app

    found = [
        one
        for one in load_app(app).serializer.subject_keys.subjects()
        if one.forgotten_at or not forgotten
    ]
    if as_json:
        for one in found:
            moment = one.forgotten_at and one.forgotten_at.isoformat()
            typer.echo(json.dumps({"subject": one.subject, "forgotten_at": moment}))
        return
    if not found:
        typer.echo("no such subjects")
        return
    print_table(
        ("subject", "forgotten (UTC)"),
        (
            (one.subject, one.forgotten_at.strftime(_FORMAT) if one.forgotten_at else "")
            for one in found
        ),
    )


@commands.command()
def forget(
    subject: Annotated[str, typer.Argument(help="The subject's id, as in the events.")],
    *,
    app: AppPath,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Destroy a subject's key: its personal fields can never be read again, by anyone."""
    from headrace.app import load_app

    application = load_app(app)
    keys = application.serializer.subject_keys
    if not yes:
        typer.confirm(f"destroy the key of {subject!r} for ever?", abort=True)
    had = keys.forget(subject)
    typer.echo(
        f"the key of {subject!r} is destroyed" if had else f"{subject!r} had no key (any more)"
    )
    names = _readers(application)
    if names:
        typer.echo(f"rows may still hold plain values; rebuild: {', '.join(names)}")


def _readers(application: "App") -> list[str]:
    """Returns the names of projections that react to events with personal fields."""
    types = application.serializer.events.types.values()
    personal = [each for each in types if each.message_personal]
    return sorted(
        name
        for name, projection in application.projections.items()
        if any(projection.reacts_to(each) for each in personal)
    )
