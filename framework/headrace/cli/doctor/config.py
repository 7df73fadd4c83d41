"""
`headrace config`: the settings of a broker and of an application as they count, and where each comes from.

    store.flush   interval   HEADRACE_STORE__FLUSH

Reads the same file, variables and `--set` as `headrace broker` and `headrace run`, or asks brokers that run; passwords in
addresses are left out.
"""

import asyncio
import os
from typing import Annotated

import typer

from headrace.cli.alarms.alarms_file import MaybeAlarmsFile, read_alarms_file
from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.settings import ConfigFile, SetPairs
from headrace.cli.tables import print_table

__all__ = ["commands"]

commands = typer.Typer(
    help="Settings of a broker and of an application, and where each comes from.",
    no_args_is_help=True,
)


@commands.command()
def show(
    *,
    given: Annotated[
        bool, typer.Option("--given", help="Leave out those that have their default.")
    ] = False,
    running: Annotated[
        bool,
        typer.Option(
            "--running", help="Ask the brokers that run, in place of the file and the variables."
        ),
    ] = False,
    differing: Annotated[
        bool,
        typer.Option(
            "--differing", help="With --running: only those that differ between brokers of a group."
        ),
    ] = False,
    config: ConfigFile = None,
    set_: SetPairs = None,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Show each setting with its value and its source: default, file, environment or option.

    Run it with the file and the variables of `headrace broker` or `headrace run`; it starts nothing. With `--running`
    it shows what brokers that run were given.
    """
    if running:
        _show_running(broker, given=given, differing=differing, as_json=as_json)
        return
    if differing:
        raise typer.BadParameter("only --running compares; add it", param_hint="--differing")
    from headrace.cli.doctor.given import effective

    found = [
        one
        for one in effective(file=config, environment=os.environ, pairs=set_ or ())
        if not given or one.source != "default"
    ]
    if as_json:
        print_json(found)
        return
    print_table(
        ("of", "setting", "value", "source"),
        ((one.command, one.name, _written(one.value), one.source) for one in found),
    )


def _show_running(broker: str, *, given: bool, differing: bool, as_json: bool) -> None:
    from headrace.figures.settings import chosen, settings_shown

    found = chosen(ask(broker, settings_shown), given=given, differing=differing)
    if as_json:
        print_json(found)
        return
    print_table(
        ("setting", "value", "unit", "default", "source", "broker", ""),
        (
            (one.name, each.value, one.unit, one.default, each.source, each.broker, "differs" if one.differs else "")
            for one in found.settings
            for each in one.brokers
        ),
    )  # fmt: skip
    for name, sentence in found.silent.items():
        typer.echo(f"{name} does not answer: {sentence}", err=True)
    if found.silent:
        raise typer.Exit(1)


@commands.command()
def services(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ADDRESS]...", help="Of metrics, HOST:PORT or http://…/metrics."),
    ] = None,
    *,
    given: Annotated[
        bool, typer.Option("--given", help="Leave out those that have their default everywhere.")
    ] = False,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only those that differ between processes.")
    ] = False,
    alarms: MaybeAlarmsFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings of processes of an application that run, and what differs between them.

    Name the addresses of their `--metrics`, or the file of alarms, which has those of all processes. Exit status 1 if one does not
    answer.
    """
    from headrace.alarms.settings import require_http
    from headrace.figures.settings import chosen
    from headrace.metrics.services import ProcessAddress, plain_services, services_shown

    named = [
        ProcessAddress(one if "://" in one else f"http://{one}/metrics") for one in addresses or ()
    ]
    for one in named:
        try:
            require_http(one.url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="ADDRESS") from error
    if alarms is not None:
        named += [ProcessAddress(*each) for each in read_alarms_file(alarms).services]
    if not named:
        raise typer.BadParameter(
            "name one, or a file of alarms with --alarms", param_hint="ADDRESS"
        )
    found = chosen(asyncio.run(services_shown(named)), given=given, differing=differing)
    if as_json:
        print_json(plain_services(found))
    else:
        print_table(
            ("setting", "value", "unit", "default", "source", "process", ""),
            (
                (one.name, each.value, one.unit, one.default, each.source, each.broker, "differs" if one.differs else "")
                for one in found.settings
                for each in one.brokers
            ),
        )  # fmt: skip
    for name, sentence in found.silent.items():
        typer.echo(f"{name} does not answer: {sentence}", err=True)
    if found.silent:
        raise typer.Exit(1)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(value) if isinstance(value, list) else "" if value is None else str(value)
