"""
The options of TLS, for every command that takes a broker's address.

    headrace topic list --broker queue.example:9876 --tls-ca ca.pem
    HEADRACE_TLS_CA=ca.pem headrace topic list --broker queue.example:9876
    headrace topic list --broker 'tls://queue.example:9876?ca=ca.pem'

All three mean the same: options and variables become a part of the address, which is all that the rest of
the program knows. So they reach Spark's executors in its plan; these need the files under the same names.

Used by the command line, which gives the options to its commands, and by the option `--broker`.
"""

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
}
_HELP = {
    "ca": "TLS: believe brokers whose certificate one of these authorities signed (PEM).",
    "certificate": "TLS: show this certificate to the broker (PEM).",
    "key": "TLS: the key of that certificate (PEM).",
}


class SecureGroup(TyperGroup):
    """The command line: each command with `--broker` gets the options of TLS, too."""

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


def _options() -> list[Any]:
    def keep(context: typer.Context, parameter: typer.CallbackParam, value: Path | None) -> None:
        context.meta.setdefault(_META, {})[(parameter.name or "").removeprefix("tls_")] = value

    def option(name: str) -> Any:
        return typer.Option(
            f"--tls-{name}", envvar=VARIABLES[name], metavar="FILE", help=_HELP[name],
            callback=keep, expose_value=False, is_eager=True,
        )  # fmt: skip

    def options(
        *,
        tls_ca: Annotated[Path | None, option("ca")] = None,
        tls_certificate: Annotated[Path | None, option("certificate")] = None,
        tls_key: Annotated[Path | None, option("key")] = None,
    ) -> None: ...

    one = typer.Typer(add_completion=False)
    one.command()(options)
    return [each for each in typer.main.get_command(one).params if each.name != "help"]


def secured(context: typer.Context, address: str) -> str:
    """Returns the address of a broker with the files that the options name; they are made absolute.

    Raises:
        ValueError: it is no address, or there is a certificate without its key, or the reverse.
    """
    from headrace_mq._net.address import BrokerAddress, ClientFiles

    parsed = BrokerAddress.parse(address)
    given = ClientFiles(**context.meta.get(_META, {}))
    if parsed.tls is None and not any(given):
        return address
    files = parsed.secured(given)
    tls = files.tls or given
    return str(files._replace(tls=ClientFiles(*(one and one.absolute() for one in tls))))
