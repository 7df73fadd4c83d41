"""
`headrace samples`: lists the samples that come with the package, and copies one to where you can change it.

Used by you after `pip install headrace`, where there is no checkout to look at. A copy keeps its path
`samples/NAME`, so that the commands and imports of the documents work in its folder.
"""

import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace._runtime.shipped import shipped_folder
from headrace.cli.tables import print_table

__all__ = ["SAMPLES", "Sample", "commands", "copy_sample"]

commands = typer.Typer(help="The samples that come with the package.", no_args_is_help=True)

_BROKER: Final = "headrace broker --data var/broker"
_NOT_COPIED: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".ipynb_checkpoints")


@dataclass(frozen=True)
class Sample:
    """What a sample shows, and what belongs to it.

    Attributes:
        shows: for a person who chooses.
        path: its file or folder.
        data: further paths that it reads.
        needs: other samples that it imports.
        install: packages that `pip install` has to bring; empty: none.
        start: commands, each for a terminal of its own.
    """

    shows: str
    path: str
    data: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    install: str = ""
    start: tuple[str, ...] = ()


SAMPLES: Final = {
    "notes": Sample(
        "the smallest application: notes with a title",
        "samples/notes.py",
        start=(_BROKER, "headrace run samples.notes:app"),
    ),
    "bank": Sample(
        "accounts and transfers between them: projections, a process manager, a demo",
        "samples/bank",
        data=("seeds/bank",),
        needs=("kafka",),
        start=(_BROKER, "headrace run samples.bank:app", "python -m samples.bank.demo"),
    ),
    "registration": Sample(
        "unique e-mail addresses among many users",
        "samples/registration",
        start=(_BROKER, "headrace run samples.registration:app"),
    ),
    "conference": Sample(
        "seats reserved until they are paid: a process with a timeout and a compensation",
        "samples/conference",
        start=(_BROKER, "headrace run samples.conference:app"),
    ),
    "web": Sample(
        "the bank behind FastAPI and behind Django",
        "samples/web",
        needs=("bank",),
        install="fastapi uvicorn django",
        start=(
            _BROKER,
            "headrace run samples.bank:app",
            "uvicorn --factory samples.web.bank_api:make_web",
            "python -m samples.web.bank_django runserver 127.0.0.1:8000",
        ),
    ),
    "shop": Sample(
        "the queue alone: an order and its message, both or neither",
        "samples/shop.py",
    ),
    "stock": Sample(
        "the queue alone: a topic that keeps the latest message of each key",
        "samples/stock.py",
        start=(_BROKER, "python -m samples.stock 127.0.0.1:9876"),
    ),
    "peak": Sample(
        "the queue alone: a burst of ten times what a service handles, and its backlog",
        "samples/peak.py",
        start=(_BROKER, "python -m samples.peak 127.0.0.1:9876"),
    ),
    "kafka": Sample(
        "a real Kafka on your machine, to try applications on; needs Java 17",
        "samples/kafka.py",
        install="'headrace[kafka,spark]'",
        start=("python -m samples.kafka jars", "python -m samples.kafka run"),
    ),
}


@commands.command("list")
def list_samples() -> None:
    """List the samples, the simplest first."""
    print_table(("sample", "shows"), ((name, one.shows) for name, one in SAMPLES.items()))


@commands.command("copy")
def copy(
    name: Annotated[str, typer.Argument(help="As `headrace samples list` shows it.")],
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where it goes, as DIR/samples/NAME.")
    ] = Path(),
) -> None:
    """Copy a sample, with what it needs, into a folder; never overwrites anything."""
    sample = SAMPLES.get(name)
    if sample is None:
        near = get_close_matches(name, SAMPLES, n=1)
        meant = f"did you mean {near[0]}?" if near else "see `headrace samples list`"
        raise typer.BadParameter(f"there is no sample {name!r}; {meant}", param_hint="NAME")
    if directory.exists() and not directory.is_dir():
        raise typer.BadParameter(f"{directory} is no folder", param_hint="DIR")
    target = directory / sample.path
    if target.exists():
        raise typer.BadParameter(
            f"{target} is there already; name another folder, or move it away", param_hint="DIR"
        )
    copy_sample(name, directory)
    typer.echo(f"{target} is yours to change.")
    lines = [f"  cd {directory}"] if directory != Path() else []
    lines += [f"  pip install {sample.install}"] if sample.install else []
    lines += [f"  {command}" for command in sample.start]
    if sample.start:
        typer.echo("Start it, each command in its own terminal:\n")
        typer.echo("\n".join(lines))


def copy_sample(name: str, directory: Path) -> None:
    """Copies a sample and what it needs; leaves what is there already.

    Args:
        name: one of SAMPLES.
        directory: made if it is missing.

    Raises:
        DefinitionError: the installation lacks the samples.
        OSError: a file cannot be written.
    """
    root = shipped_folder("_shipped", "", mark="samples/__init__.py")
    sample = SAMPLES[name]
    for other in sample.needs:
        copy_sample(other, directory)
    for path in ("samples/__init__.py", sample.path, *sample.data):
        source, target = root / path, directory / path
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_NOT_COPIED)
        else:
            shutil.copyfile(source, target)
