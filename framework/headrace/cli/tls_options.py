"""
The options of TLS and of a login, for every command that takes a broker's address.

    headrace topic list --broker queue.example:9876 --tls-ca ca.pem
    HEADRACE_TLS_CA=ca.pem headrace topic list --broker queue.example:9876
    headrace topic list --broker 'tls://queue.example:9876?ca=ca.pem'

    HEADRACE_USER=ann HEADRACE_PASSWORD_FILE=ann.txt headrace topic list

The first three mean the same: options and variables become a part of the address, which is all that the rest of
the program knows. So they reach Spark's executors in its plan; these need the files under the same names.

Used by the command line, which gives the options to its commands, and by the option `--broker`.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["VARIABLES", "SecureGroup", "secured"]

# Where the files go until `--broker` asks for them.
_META = __name__
# What the options are called in the environment.
VARIABLES = {
    "ca": "HEADRACE_TLS_CA",
    "certificate": "HEADRACE_TLS_CERTIFICATE",
    "key": "HEADRACE_TLS_KEY",
    "user": "HEADRACE_USER",
    "password_file": "HEADRACE_PASSWORD_FILE",
}
_HELP = {
    "ca": "TLS: believe brokers whose certificate one of these authorities signed (PEM).",
    "certificate": "TLS: show this certificate to the broker (PEM).",
    "key": "TLS: the key of that certificate (PEM).",
    "user": "Log in to the broker with this name.",
    "password_file": "A file with the password alone, which no other user may read.",
}


class SecureGroup(TyperGroup):
    """The command line: each command with `--broker` gets the options of TLS and of a login, too."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for each in self.commands.values():
            _extend(each)


def _extend(command: Any) -> None:
    for each in getattr(command, "commands", {}).values():
        _extend(each)
    names = {parameter.name for parameter in command.params}
    found = [each for each in command.params if getattr(each, "envvar", None) == "HEADRACE_BROKER"]
    if found and "tls_ca" not in names:
        behind = command.params.index(found[0]) + 1
        command.params[behind:behind] = _options()


@cache  # sixty commands have the same ones, and to make them takes milliseconds
def _options() -> tuple[Any, ...]:
    def keep(
        context: typer.Context, parameter: typer.CallbackParam, value: Path | str | None
    ) -> None:
        name = (parameter.name or "").removeprefix("tls_").removeprefix("login_")
        context.meta.setdefault(_META, {})[name] = value

    def option(name: str, written: str, metavar: str = "FILE") -> Any:
        return typer.Option(
            written, envvar=VARIABLES[name], metavar=metavar, help=_HELP[name],
            callback=keep, expose_value=False, is_eager=True,
        )  # fmt: skip

    def options(
        *,
        tls_ca: Annotated[Path | None, option("ca", "--tls-ca")] = None,
        tls_certificate: Annotated[Path | None, option("certificate", "--tls-certificate")] = None,
        tls_key: Annotated[Path | None, option("key", "--tls-key")] = None,
        login_user: Annotated[str | None, option("user", "--user", "NAME")] = None,
        login_password_file: Annotated[
            Path | None, option("password_file", "--password-file")
        ] = None,
    ) -> None: ...

    one = typer.Typer(add_completion=False)
    one.command()(options)
    return tuple(each for each in typer.main.get_command(one).params if each.name != "help")


def secured(context: typer.Context, address: str) -> str:
    """Returns the address of a broker with the files and the user that the options name; files become absolute.

    Raises:
        ValueError: it is no address, or there is a certificate without its key, or a user without a password, or
            the reverse.
    """
    from headrace_mq._net.address import BrokerAddress, ClientFiles

    parsed = BrokerAddress.parse(address)
    kept = dict(context.meta.get(_META, {}))
    user, password_file = kept.pop("user", None), kept.pop("password_file", None)
    given = ClientFiles(**kept)
    if not (parsed.tls or parsed.login or any(given) or user or password_file):
        return address
    if parsed.tls is not None or any(given):
        files = parsed.secured(given).tls or given
        parsed = parsed._replace(tls=ClientFiles(*(one and one.absolute() for one in files)))
    parsed = parsed.as_user(user, password_file)
    if parsed.login is not None:
        login = parsed.login
        parsed = parsed._replace(login=login._replace(password_file=login.password_file.absolute()))
    return str(parsed)
