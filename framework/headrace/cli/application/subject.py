"""`headrace subject`: lists the subjects of personal fields, and forgets them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import AppPath, EventStoreUrl
from headrace.cli.tables import print_table

if TYPE_CHECKING:  # the application is loaded by the functions that need it
    from headrace.app import App
    from headrace.subjects.keys import SubjectKeys

__all__ = ["commands"]

commands = typer.Typer(help="Subjects of personal fields.", no_args_is_help=True)

_FORMAT = "%Y-%m-%d %H:%M:%S"

_KeysFolder = Annotated[
    Path | None,
    typer.Option(
        "--keys-folder", metavar="FOLDER",
        help="Where FolderKeys keeps the keys; by default they are where the application says, or"
        " in the database of the events.",
    ),
]  # fmt: skip


@commands.command("list")
def list_subjects(
    *,
    app: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    keys_folder: _KeysFolder = None,
    forgotten: Annotated[
        bool, typer.Option("--forgotten", help="Only those that were forgotten.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON per subject.")] = False,
) -> None:
    """List the subjects that have a key, and those that were forgotten."""
    from headrace.app import load_app

    keys = _keys_of(load_app(app), event_store, keys_folder)
    found = [one for one in keys.subjects() if one.forgotten_at or not forgotten]
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
    subject: Annotated[
        str | None, typer.Argument(help="The subject's id, as in the events.")
    ] = None,
    *,
    app: AppPath,
    event_store: EventStoreUrl = "sqlite:///var/events.db",
    keys_folder: _KeysFolder = None,
    note: Annotated[
        Path | None,
        typer.Option(
            "--note", metavar="FILE", envvar="HEADRACE_FORGOTTEN",
            help="Add the subject to this list first. Keep it apart from the keys and their backups.",
        ),
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option(
            "--again", metavar="FILE",
            help="Forget all subjects of a list: after a backup of the keys was restored.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:  # fmt: skip
    """Destroy a subject's key: its personal fields can never be read again, by anyone."""
    from headrace.app import load_app
    from headrace.subjects.forgotten import note_forgotten, read_forgotten

    if (subject is None) == (again is None):
        raise typer.BadParameter("give the id of one subject, or --again FILE with a list of them")
    application = load_app(app)
    keys = _keys_of(application, event_store, keys_folder)
    if again is not None:
        _forget_again(keys, [each.subject for each in read_forgotten(again)], yes=yes)
    elif subject is not None:
        if not yes:
            typer.confirm(f"destroy the key of {subject!r} for ever?", abort=True)
        if note is not None:
            note_forgotten(note, subject, datetime.now(UTC))
        had = keys.forget(subject)
        typer.echo(
            f"the key of {subject!r} is destroyed" if had else f"{subject!r} had no key (any more)"
        )
        if note is None:
            typer.echo("a backup from before has the key: note who is forgotten with --note FILE")
    names = _readers(application)
    if names:
        typer.echo(f"rows may still hold plain values; rebuild: {', '.join(names)}")


def _forget_again(keys: "SubjectKeys", subjects: list[str], *, yes: bool) -> None:
    if not yes:
        typer.confirm(f"destroy the keys of {len(subjects):,} subjects for ever?", abort=True)
    count = sum(map(keys.forget, subjects))
    typer.echo(f"{count:,} of {len(subjects):,} subjects had a key, which is destroyed now")


def _keys_of(application: "App", event_store: str, folder: Path | None) -> "SubjectKeys":
    """Returns the keys that an application uses, or those in a folder.

    Raises:
        DefinitionError: the application has no personal fields.
        SubjectKeysError: there is no such folder.
        typer.BadParameter: the keys are in the memory of another process.
    """
    from headrace.errors import SubjectKeysError
    from headrace.subjects.folder import FolderKeys
    from headrace.subjects.keys import MemoryKeys

    keys = application.serializer_at(event_store).subject_keys
    if folder is not None:
        if not folder.is_dir():
            raise SubjectKeysError(f"there is no folder of keys {folder}; correct its name")
        return FolderKeys(folder)
    if isinstance(keys, MemoryKeys):
        raise typer.BadParameter(
            "the keys are in the memory of another process and end with it; name the database of the"
            " events",
            param_hint="--event-store",
        )
    return keys


def _readers(application: "App") -> list[str]:
    """Returns the names of projections that react to events with personal fields."""
    types = application.serializer.events.types.values()
    personal = [each for each in types if each.message_personal]
    return sorted(
        name
        for name, projection in application.projections.items()
        if any(projection.reacts_to(each) for each in personal)
    )
