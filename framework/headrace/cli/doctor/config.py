"""
`headrace config`: the settings of a broker and of an application as they count, and where each comes from.

    store.flush   interval   HEADRACE_STORE__FLUSH

Reads the same file, variables and `--set` as `headrace broker` and `headrace run`; passwords in addresses are left out.
"""

import os
from typing import Annotated

import typer

from headrace.cli.queue.administration import AsJson, print_json
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
    config: ConfigFile = None,
    set_: SetPairs = None,
    as_json: AsJson = False,
) -> None:
    """Show each setting with its value and its source: default, file, environment or option.

    Run it with the file and the variables of `headrace broker` or `headrace run`; it starts nothing.
    """
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


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(value) if isinstance(value, list) else "" if value is None else str(value)
