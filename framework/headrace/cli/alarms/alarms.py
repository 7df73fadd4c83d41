"""`headrace alarms`: the rules about brokers and applications, and what says that one of them holds."""

import typer

from headrace.cli.queue.administration import AsJson, print_json
from headrace.cli.tables import print_table

__all__ = ["commands"]

commands = typer.Typer(
    help="Alarms about brokers and applications, with and without Prometheus.",
    no_args_is_help=True,
)


@commands.command("list")
def list_alarms(*, as_json: AsJson = False) -> None:
    """List the rules: how bad each is, how long it must hold, and the page that says what to do."""
    from headrace.alarms.rules.table import RULES

    if as_json:
        print_json(
            {"rules": [rule._asdict() | {"runbook": rule.runbook} for rule in RULES.values()]}
        )
        return
    print_table(
        ("alarm", "severity", "after", "what to do"),
        ((one.name, one.severity, one.lasting, one.runbook) for one in RULES.values()),
    )


@commands.command()
def prometheus() -> None:
    """Print the rules as a file for Prometheus."""
    from headrace.alarms.rules.table import for_prometheus

    typer.echo(for_prometheus(), nl=False)
