"""
`headrace user`: the users of a broker with a login.

A password comes from a prompt or a file, never from the command line, which other users of the machine can read.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import BrokerAddress
from headrace.cli.queue.administration import AsJson, ask, print_json, quiet
from headrace.cli.tables import print_table
from headrace.errors import ExtraMissing

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for the queue
    from pydantic import SecretStr

    from headrace_mq.protocol.access import UserEntry

__all__ = ["commands"]

commands = typer.Typer(help="Users of a broker with --login.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The user's name.")]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", help="A role whose rules hold for the user; repeatable."),
]
NewPassword = Annotated[
    Path | None,
    typer.Option(
        "--new-password-file", envvar="HEADRACE_NEW_PASSWORD_FILE", metavar="FILE",
        help="A file with the new password alone. Without it you are asked at the terminal.",
    ),
]  # fmt: skip
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="FOLDER",
        help="Change the folder of a broker that is stopped, instead of asking one that runs.",
    ),
]  # fmt: skip


@commands.command()
def add(
    name: Name,
    *,
    role: Roles = None,
    admin: Annotated[bool, typer.Option("--admin", help="The user may do everything.")] = False,
    certificate: Annotated[
        bool,
        typer.Option(
            "--certificate",
            help="The user has no password: NAME is the subject of its certificate, CN=reports,O=Bank.",
        ),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="The user, a service, has no password: it logs in with the key whose public part is in FILE.",
        ),
    ] = None,
    new_password_file: NewPassword = None,
    data: Data = None,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Add a user. Make the first administrator with --admin and --data, before you start the broker."""
    if certificate and key is not None:
        raise typer.BadParameter("use --certificate or --key, not both")
    public = b"" if key is None else _public_key(key)
    password = None if certificate or public else _new_password(new_password_file)
    if data is not None:
        from headrace_mq.broker.stopped_broker import add_user

        quiet()
        entry = add_user(data, name, password, roles=role or (), admin=admin, key=public)
    else:
        entry = ask(
            broker,
            lambda it: it.add_user(name, password, roles=role or (), admin=admin, key=public),
        )
    _tell(entry)


@commands.command()
def password(
    name: Name,
    *,
    new_password_file: NewPassword = None,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Change a password: your own, or as an administrator that of another. Other connections of the user end."""
    chosen = _new_password(new_password_file)
    _tell(ask(broker, lambda admin: admin.set_password(name, chosen)))


@commands.command()
def key(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new key, or its public part.")],
    *,
    broker: BrokerAddress = "127.0.0.1:9876",
) -> None:
    """Set the key of a user, in place of the one it has. Its connections end."""
    public = _public_key(file)
    _tell(ask(broker, lambda admin: admin.set_key(name, public)))


@commands.command()
def roles(name: Name, *, role: Roles = None, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Set the roles of a user, in place of those it has; none without --role."""
    _tell(ask(broker, lambda admin: admin.change_user(name, roles=role or ())))


@commands.command()
def disable(name: Name, *, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Let a user in no more, and end its connections."""
    _tell(ask(broker, lambda admin: admin.change_user(name, disabled=True)))


@commands.command()
def enable(name: Name, *, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Let a user in again."""
    _tell(ask(broker, lambda admin: admin.change_user(name, disabled=False)))


@commands.command()
def remove(name: Name, *, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """Remove a user with its own rules, and end its connections."""
    ask(broker, lambda admin: admin.remove_user(name))
    typer.echo(f"{name}: removed")


@commands.command("list")
def list_users(*, as_json: AsJson = False, broker: BrokerAddress = "127.0.0.1:9876") -> None:
    """List all users."""
    users = ask(broker, lambda admin: admin.users())
    if as_json:
        print_json(users)
        return
    print_table(
        ("user", "roles", "logs in with", "state"),
        ((one.name, " ".join(one.roles), _proof(one), _state(one)) for one in users),
    )


def _new_password(file: Path | None) -> "SecretStr":
    from pydantic import SecretStr

    from headrace_mq._net.login import read_password

    if file is not None:
        return read_password(file)
    return SecretStr(typer.prompt("New password", hide_input=True, confirmation_prompt=True))


def _public_key(file: Path) -> bytes:
    from headrace_mq._net.login import public_key_of

    try:
        return public_key_of(file)
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            "a user with a key needs cryptography: pip install 'headrace[certificates]'"
        ) from error


def _tell(entry: "UserEntry") -> None:
    roles = f", roles {' '.join(entry.roles)}" if entry.roles else ""
    typer.echo(f"{entry.name}: {_state(entry) or 'user'}, logs in with a {_proof(entry)}{roles}")


def _proof(entry: "UserEntry") -> str:
    proofs = [name for name in ("password", "key") if getattr(entry, name)]
    return " or a ".join(proofs) or "certificate"


def _state(entry: "UserEntry") -> str:
    if entry.disabled:
        return "disabled"
    return "administrator" if entry.admin else ""
