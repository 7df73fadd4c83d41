"""
The command `headrace`: each subcommand has a module of its own.

Used by you at a terminal, and by init systems. Only this package reads the environment. Heavy imports
(broker, database, Spark) are inside the functions that need them, so that `headrace --help` stays quick.
"""

import sys
from typing import Annotated, NoReturn

import typer

from headrace.cli.aggregates import aggregate, command
from headrace.cli.alarms import alarms
from headrace.cli.application import (
    catalog,
    db,
    demo,
    events,
    history,
    new,
    parked,
    process,
    run,
    samples,
    stream,
    subject,
    topic_copy,
)
from headrace.cli.doctor import config, doctor
from headrace.cli.gateway import console, token
from headrace.cli.messages import message
from headrace.cli.nameserver import nameserver
from headrace.cli.projections import projection
from headrace.cli.queue import (
    access,
    archive,
    audit,
    broker,
    certificates,
    cluster,
    group,
    producer,
    quota,
    store,
    user,
)
from headrace.cli.sentences import sentence_of
from headrace.cli.streams import prepare_streams
from headrace.cli.tls_options import SecureGroup
from headrace.cli.top import top

__all__ = ["main"]

_EXIT_MISTAKE = 2


def _command_line() -> typer.Typer:
    command_line = typer.Typer(
        name="headrace",
        cls=SecureGroup,
        help="CQRS and event sourcing with a durable queue and Spark rebuilds.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    command_line.callback()(_options)
    command_line.add_typer(broker.commands, name="broker")
    command_line.command("nameserver")(nameserver)
    command_line.command("run")(run.run)
    command_line.command("new")(new.new)
    command_line.command("demo")(demo.demo)
    command_line.add_typer(samples.commands, name="samples")
    command_line.add_typer(token.commands, name="token")
    command_line.command("catalog")(catalog.catalog)
    command_line.command("doctor")(doctor.doctor)
    command_line.add_typer(config.commands, name="config")
    command_line.command("top")(top.top)
    command_line.add_typer(alarms.commands, name="alarms")
    command_line.command("console")(console.console)
    command_line.add_typer(aggregate.commands, name="aggregate")
    command_line.add_typer(command.commands, name="command")
    command_line.add_typer(parked.commands, name="parked")
    command_line.add_typer(projection.commands, name="projection")
    command_line.add_typer(process.commands, name="process")
    command_line.add_typer(db.commands, name="db")
    command_line.add_typer(archive.commands, name="archive")
    command_line.add_typer(certificates.commands, name="certificates")
    command_line.add_typer(cluster.commands, name="cluster")
    command_line.add_typer(topic_copy.commands, name="topic")
    command_line.add_typer(group.commands, name="group")
    command_line.add_typer(message.commands, name="message")
    command_line.add_typer(producer.commands, name="producer")
    command_line.add_typer(quota.commands, name="quota")
    command_line.add_typer(user.commands, name="user")
    command_line.add_typer(access.commands, name="acl")
    command_line.add_typer(audit.commands, name="audit")
    command_line.add_typer(store.commands, name="store")
    command_line.add_typer(stream.commands, name="stream")
    command_line.add_typer(events.commands, name="events")
    command_line.add_typer(subject.commands, name="subject")
    command_line.add_typer(history.commands, name="history")
    return command_line


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """CQRS and event sourcing with a durable queue and Spark rebuilds."""


def main() -> NoReturn:
    """Runs the command line; a user's mistake ends with one sentence and exit status 2."""
    prepare_streams()
    # Applications are named by import path and live where the command is called.
    sys.path.insert(0, "")
    try:
        _command_line()()
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        _fail(sentence)
    sys.exit(0)


def _fail(sentence: str) -> NoReturn:
    typer.echo(f"headrace: {sentence}", err=True)
    sys.exit(_EXIT_MISTAKE)
