"""`headrace acl`: what users and roles may do at a broker with a login."""

from typing import Annotated

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json
from headrace.cli.tables import print_table

__all__ = ["commands"]

commands = typer.Typer(
    help="What users and roles may do. A rule that denies wins; without a rule nothing is allowed.",
    no_args_is_help=True,
)

Subject = Annotated[str, typer.Argument(metavar="USER", help="A user, or role:NAME.")]
Action = Annotated[
    str,
    typer.Argument(
        help="publish, consume, create, update, delete, read, administer, or * for all."
    ),
]
Resource = Annotated[
    str,
    typer.Argument(help="cluster, topic:NAME, topic:PREFIX*, topic:*, and the same with group."),
]


@commands.command()
def allow(
    user: Subject,
    action: Action,
    resource: Resource,
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Allow something; takes effect at once."""
    _set(broker, user, action, resource, allows=True)


@commands.command()
def deny(
    user: Subject,
    action: Action,
    resource: Resource,
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Deny something, also where another rule allows it; takes effect at once."""
    _set(broker, user, action, resource, allows=False)


@commands.command()
def remove(
    user: Subject,
    action: Action,
    resource: Resource,
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Take a rule away, whether it allows or denies."""
    ask(broker, lambda admin: admin.remove_rule(user, action, resource))
    typer.echo(f"removed: {user} {action} {resource}")


@commands.command("list")
def list_rules(
    user: Annotated[
        str,
        typer.Argument(metavar="[USER]", help="A user with its roles, or role:NAME. Default: all."),
    ] = "",
    *,
    as_json: AsJson = False,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """List rules."""
    rules = ask(broker, lambda admin: admin.rules(user))
    if as_json:
        print_json(rules)
        return
    print_table(
        ("", "who", "action", "resource"),
        (
            ("allow" if one.allows else "deny", one.subject, one.action, one.resource)
            for one in rules
        ),
    )


@commands.command()
def explain(
    user: Annotated[str, typer.Argument(help="A user.")],
    action: Action,
    resource: Resource,
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Say whether a user may do something, and which rule decides. Ends with status 1 if it may not."""
    found = ask(broker, lambda admin: admin.explain(user, action, resource))
    typer.echo(f"{user} may {'' if found.allowed else 'not '}{action} {resource}: {found.reason}")
    if not found.allowed:
        raise typer.Exit(1)


def _set(broker: str, user: str, action: str, resource: str, *, allows: bool) -> None:
    ask(broker, lambda admin: admin.set_rule(user, action, resource, allows=allows))
    typer.echo(f"{'allow' if allows else 'deny'} {user} {action} {resource}")
