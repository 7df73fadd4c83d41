"""
The settings of a deployment as `headrace doctor` is given them: those of a broker, and those of an application.

    --config FILE ◀─ environment ◀─ --set      each overrides the one before
    [store] [archive] [group]  ─▶ a broker     [run] [http]  ─▶ an application

A file with names outside its tables is of one command, the one that knows them. What cannot be read is a finding,
and the other side is looked at all the same. Used by the command; reads the file.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
import typer
from pydantic import ValidationError

from headrace.cli.application.run import LISTENS, listening, variables
from headrace.cli.doctor.contradictions import DeploymentSettings
from headrace.cli.doctor.findings import Finding, of_sentence, shown
from headrace.cli.queue.broker_options import OPTIONS
from headrace.cli.settings import gather, names_in, parts_given
from headrace.cli.sources import DEFAULT, layers_of, source_in
from headrace.gateway.settings import GatewaySettings
from headrace.settings import Settings
from headrace_mq.settings import (
    ArchiveSettings,
    BrokerSettings,
    GroupSettings,
    NamesSettings,
    StoreSettings,
)

__all__ = ["EffectiveSetting", "GivenSettings", "effective", "read_settings"]

_BROKER: Final[Mapping[str, Any]] = {
    "broker": BrokerSettings, "store": StoreSettings, "archive": ArchiveSettings, "group": GroupSettings,
    "names": NamesSettings,
}  # fmt: skip
_APPLICATION: Final[Mapping[str, Any]] = {"run": Settings, "http": GatewaySettings}
# The setting that a part cannot do without, and its option.
_NEEDED: Final = (
    ("archive", "url", "--archive"),
    ("group", "record", "--record"),
    ("names", "servers", "--nameservers"),
)
_FOLDER: Final = "store.directory"
# The doctor has these options, too.
_OPTIONS: Final = frozenset({"run.broker", "run.event_store", "run.read_models"})
# As the options of `headrace broker` take them from the environment.
_SWITCHES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), "true"),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), "false"),
}
# What gave a setting, until it is named.
_OPTION: Final = "option"
_ADVICE: Final = "correct it; docs/limits.md lists all settings"

T = TypeVar("T")
Values = dict[str, dict[str, Any]]
# Returns NAME=VALUE for what the environment gives to options, next to a file and other pairs.
Variables = Callable[[Mapping[str, str], Path | None, list[str]], list[str]]


class GivenSettings(NamedTuple):
    """What a deployment was given.

    Attributes:
        settings: that could be read, for the pairs that contradict each other.
        run: of the application, with the defaults where nothing was given.
        data: the broker's folder; None: it was not named.
        findings: about what could not be read.
    """

    settings: DeploymentSettings
    run: Settings
    data: Path | None
    findings: list[Finding]


class EffectiveSetting(NamedTuple):
    """A setting as it counts.

    Attributes:
        command: whose it is, `broker` or `run`.
        name: with its part, such as `store.flush`.
        value: without a password; None where it has none, or must be given.
        source: `default`, or the file, the variable or the option that gave it.
    """

    command: str
    name: str
    value: Any
    source: str


def effective(
    *, file: Path | None, environment: Mapping[str, str], pairs: Iterable[str]
) -> list[EffectiveSetting]:
    """Returns all settings of a broker and of an application with where each comes from.

    Args:
        file: in TOML, or None.
        environment: of the process.
        pairs: of `--set`.

    Raises:
        typer.BadParameter: one cannot be read; the sentence says which.
    """
    findings: list[Finding] = []
    owner = _owner(file, findings)
    if findings:
        raise typer.BadParameter(findings[0].finding, param_hint="--config")
    of_broker, of_application = _divided(pairs)
    named = {row.variable: row.setting for row in OPTIONS if row.variable is not None}
    return [
        *_effective("broker", _BROKER, _Sources(
            file if owner is None or owner is _BROKER else None, environment, of_broker, named, _of_broker
        )),
        *_effective("run", _APPLICATION, _Sources(
            file if owner is None or owner is _APPLICATION else None, environment, of_application, variables(), _of_application
        )),
    ]  # fmt: skip


class _Sources(NamedTuple):
    """Where the settings of a command come from, the weakest first; `named` has the variables of its options."""

    file: Path | None
    environment: Mapping[str, str]
    pairs: list[str]
    named: Mapping[str, str]
    of_options: Variables


def _effective(command: str, kinds: Mapping[str, Any], its: _Sources) -> Iterator[EffectiveSetting]:
    # The doctor has some of these as options of its own, and leaves their variables out.
    more = {one: name for one, name in its.named.items() if name in {*_OPTIONS, _FOLDER}}
    texts = [
        *its.of_options(its.environment, its.file, its.pairs),
        *_given_by(its.environment, more, kinds),
    ]
    layers = {
        **layers_of(kinds, file=its.file, environment=its.environment, pairs=its.pairs),
        _OPTION: gather(kinds, file=None, environment={}, pairs=texts),
    }
    by_setting = {setting: variable for variable, setting in its.named.items()}
    for part, kind in kinds.items():
        for name, default in _defaults(kind, kinds.values()):
            source, value = source_in(layers, part, name)
            if source == DEFAULT:
                value = default
            elif source == _OPTION:
                source = by_setting.get(f"{part}.{name}", LISTENS)
            full = name if part == command else f"{part}.{name}"
            yield EffectiveSetting(command, full, shown(_plain(value)), source)


def _defaults(kind: Any, parts: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the settings of a class with their defaults; those that are parts of their own are left out."""
    hints = get_type_hints(kind)
    nested = set(parts)
    fields = getattr(kind, "model_fields", None)
    if fields is not None:
        for name, field in fields.items():
            default = field.get_default(call_default_factory=True)
            yield name, None if field.is_required() else default
        return
    for each in msgspec.structs.fields(kind):
        if not nested & {hints[each.name], *get_args(hints[each.name])}:
            yield each.name, None if each.default is msgspec.NODEFAULT else each.default


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [str(each) for each in value] if isinstance(value, tuple) else value


def read_settings(
    *,
    file: Path | None,
    environment: Mapping[str, str],
    pairs: Iterable[str],
    options: Mapping[str, Any],
    given: Collection[str],
    secured: Callable[[str], str] = str,
) -> GivenSettings:
    """Reads the settings of a broker and of an application.

    Args:
        file: in TOML, or None.
        environment: of the process.
        pairs: of `--set`.
        options: of the command that are settings of the application, by their names, and `data`.
        given: the options that are no defaults: these are strongest.
        secured: adds the files and the user of the options to an address that the settings name; raises
            typer.BadParameter where it is none.
    """
    findings: list[Finding] = []
    of_broker, of_application = _divided(pairs)
    owner = _owner(file, findings)

    def values(kinds: Mapping[str, Any], more: list[str], variables: Variables) -> Values:
        try:
            own = file if owner is None or owner is kinds else None
            # An option is the strongest, also where a variable gives it.
            every = [*more, *variables(environment, own, more)]
            return gather(kinds, file=own, environment=environment, pairs=every)
        except typer.BadParameter as error:
            findings.append(of_sentence("failed", "settings", error.message, _ADVICE))
            return {part: {} for part in kinds}

    broker = values(_BROKER, of_broker, _of_broker)
    application = values(_APPLICATION, of_application, _of_application)
    if isinstance(address := application["run"].get("broker"), str):
        try:
            application["run"]["broker"] = secured(address)
        except typer.BadParameter as error:
            findings.append(of_sentence("failed", "settings", f"broker: {error.message}", _ADVICE))
            del application["run"]["broker"]
    named = options["data"] or broker["store"].get("directory")
    run, run_given = _run(application["run"], options, given, findings)
    return GivenSettings(
        settings=DeploymentSettings(
            _made(lambda: _broker(broker), findings) if any(broker.values()) else None,
            run if run_given else None,
            _made(lambda: GatewaySettings(**application["http"]), findings) if application["http"] else None,
        ),
        run=run,
        data=None if named is None else Path(named),
        findings=findings,
    )  # fmt: skip


def _divided(pairs: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns the pairs that are of a broker, and those that are of an application."""
    of_broker: list[str] = []
    of_application: list[str] = []
    for pair in pairs:
        part, _, name = pair.partition("=")[0].rpartition(".")
        mine = part in _BROKER if part else name in BrokerSettings.__struct_fields__
        (of_broker if mine else of_application).append(pair)
    return of_broker, of_application


def _owner(file: Path | None, findings: list[Finding]) -> Mapping[str, Any] | None:
    """Returns whose settings stand in a file outside its tables; None: none do, and both sides read it."""
    try:
        names = names_in(file)
    except typer.BadParameter as error:
        findings.append(of_sentence("failed", "settings", error.message, "name a file of TOML"))
        return {}
    if not names:
        return None
    of_application = names & Settings.model_fields.keys()
    of_broker = names & {*BrokerSettings.__struct_fields__}
    return _APPLICATION if len(of_application) > len(of_broker) else _BROKER


def _of_broker(environment: Mapping[str, str], _file: Path | None, _pairs: list[str]) -> list[str]:
    named = {row.variable: row.setting for row in OPTIONS if row.variable is not None}
    return _given_by(
        environment, {one: name for one, name in named.items() if name != _FOLDER}, _BROKER
    )


def _of_application(
    environment: Mapping[str, str], file: Path | None, pairs: list[str]
) -> list[str]:
    """As `headrace run` does it: variables of HTTP count where HTTP is served."""
    named = {one: name for one, name in variables().items() if name not in _OPTIONS}
    http = environment.get(LISTENS, "")
    if not http and "http" not in parts_given(file=file, environment=environment, pairs=pairs):
        named = {one: name for one, name in named.items() if not name.startswith("http.")}
    place = listening(http) if http else {}
    found = _given_by(environment, named, _APPLICATION)
    return found + [f"http.{name}={value}" for name, value in place.items()]


def _given_by(
    environment: Mapping[str, str], named: Mapping[str, str], kinds: Mapping[str, Any]
) -> list[str]:
    found = []
    for variable, setting in named.items():
        text = environment.get(variable, "")  # an empty one is none
        part, _, name = setting.partition(".")
        if get_type_hints(kinds[part])[name] is bool:
            text = _SWITCHES.get(text.lower(), text)
        if text:
            found.append(f"{setting}={text}")
    return found


def _made(make: Callable[[], T], findings: list[Finding]) -> T | None:
    try:
        return make()
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, wrong["loc"]))
        said = f"{name}: {wrong['msg']}".removeprefix(": ")
        findings.append(of_sentence("failed", "settings", said, _ADVICE))
    except (TypeError, ValueError) as error:
        findings.append(of_sentence("failed", "settings", str(error), _ADVICE))
    return None


def _broker(read: Values) -> BrokerSettings:
    for part, needed, option in _NEEDED:
        if read[part] and needed not in read[part]:
            raise ValueError(f"{part}.{needed} is missing; say where it is ({option})")
    store = {"directory": Path(), **read["store"]}
    return BrokerSettings(
        store=StoreSettings(**store),
        archive=ArchiveSettings(**read["archive"]) if read["archive"] else None,
        group=GroupSettings(**read["group"]) if read["group"] else None,
        names=NamesSettings(**read["names"]) if read["names"] else None,
        **read["broker"],
    )


def _run(
    read: dict[str, Any],
    options: Mapping[str, Any],
    given: Collection[str],
    findings: list[Finding],
) -> tuple[Settings, bool]:
    """Returns the application's settings, and whether any was given."""
    own = {name: value for name, value in options.items() if name != "data"}
    chosen = {name: value for name, value in own.items() if name not in read or name in given}
    made = _made(lambda: Settings(**{**read, **chosen}), findings)
    if made is None:
        return Settings(**own), False
    return made, bool(read or set(given) - {"data", "broker"})
