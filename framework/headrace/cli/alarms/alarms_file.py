"""
The file that says what is watched and who gets messages, in TOML; times and sizes have a unit.

    every_ms = "15s"                       [[target]]   url = "http://127.0.0.1:9464/metrics"
    folder = "var/alarms"                  [[webhook]]  name = "duty", url_file = "duty.url"

Used by `headrace alarms` and `headrace console`.
"""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.amounts import unit_of

if TYPE_CHECKING:  # loaded by the function: the help text must not wait for pydantic
    from headrace.alarms.settings import AlarmSettings

__all__ = ["AlarmsFile", "MaybeAlarmsFile", "read_alarms_file"]

AlarmsFile = Annotated[
    Path,
    typer.Option(
        "--alarms",
        envvar="HEADRACE_ALARMS",
        metavar="FILE",
        help="Settings of alarms in TOML: what is watched, and who gets messages.",
    ),
]

MaybeAlarmsFile = Annotated[
    Path | None,
    typer.Option(
        "--alarms",
        envvar="HEADRACE_ALARMS",
        metavar="FILE",
        help="Settings of alarms in TOML: with them you see which alarms fire.",
    ),
]


def read_alarms_file(file: Path) -> "AlarmSettings":
    """Returns the settings in a file.

    Raises:
        typer.BadParameter: it cannot be read, or a value is wrong; the sentence says which.
    """
    from pydantic import ValidationError

    from headrace.alarms.settings import AlarmSettings

    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(
            f"{file} cannot be read: {error}", param_hint="--alarms"
        ) from error
    try:
        return AlarmSettings(**{name: _amount(name, value) for name, value in given.items()})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = f"{where}: {first['msg']}" if where else first["msg"]
        raise typer.BadParameter(f"{file}: {said}", param_hint="--alarms") from error


def _amount(name: str, value: Any) -> Any:
    unit = unit_of(name)
    return unit.read(value) if unit is not None and isinstance(value, str) else value
