"""
Settings of a broker and of an application, from a file, the environment and `--set`, by their own names.

    headrace broker --config broker.toml      connections_max = 1000, and [store], [archive], [group]
    HEADRACE_STORE__FLUSH=interval            two underscores between the part and the name
    headrace broker --set store.flush=interval

    headrace run shop:app --config shop.toml  result_timeout_ms = 5000, and [http]
    HEADRACE_RUN__RESULT_TIMEOUT_MS=5s
    headrace run shop:app --set http.page_rows=50

Each line overrides the one above it, and an option of the command overrides all of them. Names and types
are those of the settings, so a new setting works here at once. Write times and sizes with a unit (`72h`,
`10GiB`), or as the number that the setting holds. Both commands may share a file, with tables [broker] and [run].

Used by `headrace broker` and `headrace run`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from headrace.cli.amounts import unit_of

if TYPE_CHECKING:  # the help text must not wait for the queue
    import msgspec
    from pydantic import BaseModel

    Kind = type[msgspec.Struct] | type[BaseModel]

__all__ = [
    "ConfigFile",
    "SetPairs",
    "SettingsFile",
    "gather",
    "names_in",
    "parts_given",
    "settings_file",
]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", envvar="HEADRACE_CONFIG", metavar="FILE",
        help="Settings in TOML by name; those of parts in tables such as \\[store] or \\[http].",
    ),
]  # fmt: skip
SetPairs = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting, such as store.flush=interval or http.page_rows=50; repeatable."),
]  # fmt: skip

# All tables of a file: each command passes over those of the other one.
_PARTS = frozenset({"broker", "store", "archive", "group", "names", "nameserver", "run", "http"})
_WORDS = {"true": True, "false": False}
# Settings of earlier versions, and what to do where one is still given.
REMOVED = {
    "store.tail_cache_bytes": "delete it: recent messages are read from the system's page cache",
}


class SettingsFile(NamedTuple):
    """What a file of settings says, read once: a pipe, such as of `--config <(sops -d shop.toml)`, has nothing the second time."""

    path: Path
    values: Mapping[str, Any]

    def __str__(self) -> str:
        """Its path, for messages."""
        return str(self.path)


def settings_file(path: Path | None) -> SettingsFile | None:
    """Reads a file of settings, None without one; raises as `gather`."""
    return None if path is None else SettingsFile(path, _read(path))


def gather(
    kinds: Mapping[str, "Kind"],
    *,
    file: Path | SettingsFile | None,
    environment: Mapping[str, str],
    pairs: Iterable[str] | None,
) -> dict[str, dict[str, Any]]:
    """Returns the values that were given, by part and name.

    Args:
        kinds: the settings of each part. Those of the first are named without a prefix; the others
            begin with the part and a dot.
        file: in TOML, or what was read of it, or None.
        environment: of the process.
        pairs: NAME=VALUE or PART.NAME=VALUE.

    Raises:
        typer.BadParameter: a name that there is not, a value that is not of its type, a file that
            cannot be read; the sentence says where and what is meant.
    """
    known = {part: _types(kind, kinds.values()) for part, kind in kinds.items()}
    given: dict[str, dict[str, Any]] = {part: {} for part in kinds}
    for where, name, value in (
        *_of_file(file, known),
        *_of_environment(environment, known),
        *((f"--set {pair}", *_split(pair)) for pair in pairs or ()),
    ):
        part, wanted = _find(name, known, where)
        own = name.rpartition(".")[2]
        given[part][own] = _parse(own, value, wanted, where) if isinstance(value, str) else value
    return given


def parts_given(
    *,
    file: Path | SettingsFile | None,
    environment: Mapping[str, str],
    pairs: Iterable[str] | None,
) -> set[str]:
    """Returns the parts of which the file, the environment or `--set` has a setting; raises as `gather`."""
    variables = (name.removeprefix("HEADRACE_") for name in environment if "__" in name)
    named = {name.partition("__")[0].lower() for name in variables}
    named |= {pair.partition("=")[0].rpartition(".")[0] for pair in pairs or ()}
    return named | {name for name, value in _read(file).items() if isinstance(value, dict)}


def names_in(file: Path | None) -> set[str]:
    """Returns the names of settings that stand in a file outside its tables; raises as `gather`."""
    return {name for name, value in _read(file).items() if not isinstance(value, dict)}


def _types(kind: "Kind", parts: Iterable[type]) -> dict[str, Any]:
    fields = getattr(kind, "model_fields", None)
    hints = get_type_hints(kind)
    if fields is not None:  # of pydantic, which has hints of its own, too
        hints = {name: hint for name, hint in hints.items() if name in fields}
    nested = set(parts)
    return {name: hint for name, hint in hints.items() if not nested & {hint, *get_args(hint)}}


def _of_file(
    file: Path | SettingsFile | None, known: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, str, Any]]:
    for name, value in _read(file).items():
        if isinstance(value, dict) and name in known:
            yield from ((f"{file}", f"{name}.{own}", held) for own, held in value.items())
        elif not (isinstance(value, dict) and name in _PARTS):
            yield f"{file}", name, value


def _read(file: Path | SettingsFile | None) -> Mapping[str, Any]:
    if file is None:
        return {}
    if isinstance(file, SettingsFile):
        return file.values
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(
            f"{file} cannot be read: {error}", param_hint="--config"
        ) from error


def _of_environment(
    environment: Mapping[str, str], known: Mapping[str, Mapping[str, Any]]
) -> Iterable[tuple[str, str, str]]:
    for variable, value in sorted(environment.items()):
        for part in known:
            prefix = f"HEADRACE_{part.upper()}__"
            if variable.startswith(prefix):
                yield variable, f"{part}.{variable.removeprefix(prefix).lower()}", value


def _split(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise typer.BadParameter(f"write NAME=VALUE, not {pair!r}", param_hint="--set")
    return name, value


def _find(name: str, known: Mapping[str, Mapping[str, Any]], where: str) -> tuple[str, Any]:
    main = next(iter(known))
    part, _, own = name.rpartition(".")
    part = part or main
    if own in known.get(part, {}):
        return part, known[part][own]
    if name in REMOVED:
        raise typer.BadParameter(f"{where}: the setting {name!r} was removed; {REMOVED[name]}")
    names = [
        one if part == main else f"{part}.{one}" for part, some in known.items() for one in some
    ]
    near = get_close_matches(name.removeprefix(f"{main}."), names, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise typer.BadParameter(f"{where}: there is no setting {name!r}{meant}")


def _parse(name: str, text: str, wanted: Any, where: str) -> Any:
    kinds = {wanted, get_origin(wanted), *get_args(wanted)}
    if tuple in kinds:
        return tuple(filter(None, map(str.strip, text.split(","))))
    if NoneType in kinds and text == "none":
        return None
    if wanted is bool:
        if text not in _WORDS:
            raise typer.BadParameter(f"{where}: {name} is true or false, not {text!r}")
        return _WORDS[text]
    if int in kinds and text.lstrip("-").isdecimal():
        return int(text)
    if int in kinds:
        unit = unit_of(name)
        if unit is not None:
            return unit.read(text)
    if float in kinds:
        try:
            return float(text)
        except ValueError as error:
            raise typer.BadParameter(f"{where}: {name} is a number, not {text!r}") from error
    return Path(text) if Path in kinds else text
