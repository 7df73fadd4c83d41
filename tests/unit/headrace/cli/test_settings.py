"""Every setting of the broker can be given in a file, in the environment and by `--set`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.queue import broker
from headrace.cli.settings import REMOVED, gather
from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings

KINDS: Mapping[str, Any] = {
    "broker": BrokerSettings, "store": StoreSettings, "archive": ArchiveSettings,
}  # fmt: skip
DEFAULTS = {
    "store": StoreSettings(directory=Path("data")),
    "archive": ArchiveSettings(url="postgresql://h/db"),
    "broker": BrokerSettings(store=StoreSettings(directory=Path("data"))),
}


def given(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None,
    pairs: Iterable[str] = (),
) -> dict[str, dict[str, Any]]:  # fmt: skip
    return gather(KINDS, file=file, environment=environment or {}, pairs=pairs)


def every_setting() -> list[tuple[str, str, Any]]:
    return [
        (part, name, getattr(settings, name))
        for part, settings in DEFAULTS.items()
        for name in settings.__struct_fields__
        if name not in {"store", "archive"}
    ]


def as_text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@pytest.mark.parametrize(("part", "name", "value"), every_setting())
def test_every_setting_has_its_name_in_each_place(
    tmp_path: Path, part: str, name: str, value: Any
) -> None:
    said = as_text(value)
    wanted: dict[str, dict[str, Any]] = {"broker": {}, "store": {}, "archive": {}}
    wanted[part] = {name: value}
    dotted = name if part == "broker" else f"{part}.{name}"
    assert given(pairs=[f"{dotted}={said}"]) == wanted
    assert given(environment={f"HEADRACE_{part.upper()}__{name.upper()}": said}) == wanted
    literal = said if isinstance(value, bool | int | float) else f"'{said}'"
    header = "" if part == "broker" else f"[{part}]\n"
    (tmp_path / "broker.toml").write_text(f"{header}{name} = {literal}\n")
    read = given(file=tmp_path / "broker.toml")
    assert as_text(read[part][name]) == said


def test_a_nearer_source_of_settings_overrides_a_farther_one(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("port = 1\nconnections_max = 1\ndefault_queues = 1\n")
    environment = {"HEADRACE_BROKER__PORT": "2", "HEADRACE_BROKER__CONNECTIONS_MAX": "2"}
    read = given(file=file, environment=environment, pairs=["port=3"])
    assert read["broker"] == {"port": 3, "connections_max": 2, "default_queues": 1}


def test_times_and_sizes_may_have_a_unit() -> None:
    read = given(
        pairs=["store.transient_age_ms=72h", "store.segment_bytes=64MiB", "busy_poll_us=1ms"]
    )
    assert read["store"] == {"transient_age_ms": 72 * 3_600_000, "segment_bytes": 64 << 20}
    assert read["broker"] == {"busy_poll_us": 1_000}


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (["connection_max=5"], "no setting 'connection_max'; did you mean connections_max"),
        (["store.flsh=always"], "did you mean store.flush"),
        (["zzz=1"], "--set zzz=1: there is no setting 'zzz'"),
        (["store=1"], "there is no setting 'store'"),
        (["port"], "write NAME=VALUE"),
        (["auto_create_topics=yes"], "true or false, not 'yes'"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(pairs: list[str], sentence: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        given(pairs=pairs)
    assert sentence in str(raised.value)


def test_a_variable_that_names_no_setting_is_refused() -> None:
    with pytest.raises(
        typer.BadParameter, match=r"HEADRACE_STORE__FLUSHH.*did you mean store.flush"
    ):
        given(environment={"HEADRACE_STORE__FLUSHH": "always"})
    # What container platforms set for a service of this name is none of ours.
    assert given(environment={"HEADRACE_BROKER_PORT": "tcp://10.0.0.1:9876"})["broker"] == {}


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_setting_is_refused_with_what_to_do_about_it(tmp_path: Path, name: str) -> None:
    part, own = name.split(".")
    file = tmp_path / "broker.toml"
    file.write_text(f"[{part}]\n{own} = 1\n")
    places: list[tuple[str, dict[str, Any]]] = [
        (str(file), {"file": file}),
        (variable := f"HEADRACE_{part.upper()}__{own.upper()}", {"environment": {variable: "1"}}),
        (f"--set {name}=1", {"pairs": [f"{name}=1"]}),
    ]
    for where, settings in places:
        with pytest.raises(typer.BadParameter) as raised:
            given(**settings)
        assert str(raised.value) == f"{where}: the setting {name!r} was removed; {REMOVED[name]}"


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("port: 1\n")
    with pytest.raises(typer.BadParameter, match=r"broker\.toml cannot be read"):
        given(file=tmp_path / "broker.toml")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "store.flush=sync"], "flush must be 'always' or 'interval', not 'sync'"),
        (["--set", "archive.interval_ms=5"], "say where the archive is"),
    ],
)
def test_the_broker_refuses_a_wrong_value_by_its_name(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    shown = CliRunner().invoke(broker.commands, ["--data", str(tmp_path / "data"), *arguments])
    assert shown.exit_code == 2
    assert sentence in " ".join(shown.output.replace("│", " ").split())
