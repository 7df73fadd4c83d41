"""How the options of `headrace broker` become settings, and what its help tells of them."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import headrace_mq.broker.process
from headrace.cli.amounts import unit_of
from headrace.cli.queue import broker_options
from headrace.cli.queue.broker import commands
from headrace.cli.queue.broker_options import OPTIONS, BrokerGroup, OptionRow, given_settings
from headrace_mq.settings import (
    ArchiveSettings,
    BrokerSettings,
    GroupSettings,
    NamesSettings,
    StoreSettings,
    SuperviseSettings,
)

URL = "postgresql://me@host/archive"

# What is written on the command line, and the setting and value that it stands for.
GIVEN = {
    "--flush-interval": ("50ms", "flush_interval_ms", 50),
    "--segment-size": ("64MiB", "segment_bytes", 64 << 20),
    "--transient-age": ("7d", "transient_age_ms", 7 * 86_400_000),
    "--transient-size": ("10GiB", "transient_bytes_max", 10 << 30),
    "--unconsumed-age": ("0", "unconsumed_ms_max", 0),
    "--retention-interval": ("1m", "retention_interval_ms", 60_000),
    "--segments-deleted-max": ("3", "segments_deleted_max", 3),
    "--compact-segment-size": ("1MiB", "compact_segment_bytes", 1 << 20),
    "--compact-dirty": ("20%", "compact_dirty_percent", 20),
    "--compact-interval": ("1s", "compact_interval_ms", 1_000),
    "--compact-lag": ("0", "compact_lag_ms", 0),
    "--tombstone-age": ("2d", "tombstone_ms", 2 * 86_400_000),
    "--compact-memory": ("1GiB", "compact_memory_bytes", 1 << 30),
    "--compact-rate": ("0", "compact_bytes_per_s", 0),
    "--disk-refuse": ("95%", "disk_refuse_percent", 95),
    "--disk-delete": ("100%", "disk_delete_percent", 100),
    "--disk-look": ("5s", "disk_look_ms", 5_000),
}

PARTS: dict[str, Any] = {
    "broker": BrokerSettings,
    "store": StoreSettings,
    "archive": ArchiveSettings,
    "group": GroupSettings,
    "names": NamesSettings,
    "supervise": SuperviseSettings,
}


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Calls the command; returns its outcome and the settings that brokers would have got."""
    settings: list[BrokerSettings] = []
    monkeypatch.setattr(
        headrace_mq.broker.process, "run", lambda found, ready, sources: settings.append(found)
    )

    def run(*arguments: str) -> tuple[Any, list[BrokerSettings]]:
        return CliRunner().invoke(commands, ["--data", str(tmp_path), *arguments]), settings

    return run


@pytest.fixture
def started(call: Any) -> Any:
    """Calls the command; returns the settings that a broker would have got."""

    def run(*arguments: str) -> BrokerSettings:
        done, settings = call(*arguments)
        assert done.exit_code == 0, done.output
        found = settings.pop()
        assert isinstance(found, BrokerSettings)
        return found

    return run


@pytest.fixture
def options() -> dict[str, Any]:
    """The options of the command, by what is written on the command line."""
    command: Any = typer.main.get_command(commands)
    return {one.opts[0]: one for one in command.get_params(typer.Context(command))}


def test_an_option_left_out_has_its_default(started: Any, tmp_path: Path) -> None:
    assert started() == BrokerSettings(store=StoreSettings(directory=tmp_path))


def test_options_reach_the_settings_of_the_store(started: Any, tmp_path: Path) -> None:
    words = [word for option, (text, _, _) in GIVEN.items() for word in (option, text)]
    changed = {setting: value for _, setting, value in GIVEN.values()}
    expected = StoreSettings(directory=tmp_path, flush="interval", **changed)
    assert started(*words, "--flush", "interval").store == expected


def test_an_option_sets_the_number_of_filter_processes(started: Any) -> None:
    assert started().filter_processes_max == 2
    assert started("--filter-processes", "0").filter_processes_max == 0


def test_a_busy_poll_is_given_in_microseconds(started: Any) -> None:
    assert started("--busy-poll", "300us").busy_poll_us == 300
    assert started("--busy-poll", "3ms").busy_poll_us == 3_000


def test_a_broker_has_no_archive_unless_it_is_named(started: Any) -> None:
    assert started().archive is None


def test_options_reach_the_settings_of_the_archive(started: Any) -> None:
    words = ("--archive", URL, "--archive-window", "1GiB", "--archive-backlog", "2GiB")
    assert started(*words).archive == ArchiveSettings(
        url=URL, window_bytes=1 << 30, backlog_bytes_max=2 << 30
    )


def test_an_option_is_stronger_than_the_environment(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PORT", "1")
    monkeypatch.setenv("HEADRACE_BROKER__HOST", "::1")
    assert (started().port, started().host) == (1, "::1")
    assert (started("--port", "2").port, started("--host", "::1").host) == (2, "::1")


@pytest.mark.parametrize(
    "words", [["--set", "store.directory={0}"], ["--config", "{0}/broker.toml"]]
)
def test_the_folder_may_be_given_as_any_other_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    settings: list[BrokerSettings] = []
    monkeypatch.setattr(
        headrace_mq.broker.process, "run", lambda found, ready, sources: settings.append(found)
    )
    (tmp_path / "broker.toml").write_text(f"[store]\ndirectory = '{tmp_path}'\n")
    done = CliRunner().invoke(commands, [word.format(tmp_path) for word in words])
    assert done.exit_code == 0, done.output
    assert [found.store.directory for found in settings] == [tmp_path]


def test_every_option_is_a_setting() -> None:
    # Delete the row of a setting that is gone: until then its option is merely missing.
    rows = [row.setting.partition(".") for row in OPTIONS]
    assert [name for part, _, name in rows if name not in PARTS[part].__struct_fields__] == []


def test_an_option_goes_with_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        broker_options, "OPTIONS", (OptionRow("--gone", "store.gone", "Gone."), OPTIONS[0])
    )
    assert [name.name for name in broker_options._parameters()] == ["store__directory"]


def test_the_help_tells_the_defaults_of_the_settings(
    options: dict[str, Any], tmp_path: Path
) -> None:
    defaults = {
        "broker": BrokerSettings(store=StoreSettings(directory=tmp_path)),
        "store": StoreSettings(directory=tmp_path),
        "archive": ArchiveSettings(url=URL),
        "group": GroupSettings(record=URL),
        "names": NamesSettings(servers="ns:1"),
        "supervise": SuperviseSettings(),
    }
    for row in (row for row in OPTIONS if row.option in options):
        if row.option in {"--data", "--archive", "--record", "--nameservers"}:
            assert options[row.option].show_default is False
            continue
        part, _, setting = row.setting.partition(".")
        default, unit = getattr(defaults[part], setting), unit_of(setting)
        shown = options[row.option].show_default
        if default is None or default is False:
            assert shown is False, row
            continue
        assert (unit.read if unit else type(default))(shown) == default, row


def test_the_help_names_every_option_and_the_tables_of_the_file(options: dict[str, Any]) -> None:
    shown = CliRunner().invoke(commands, ["--help"], env={"COLUMNS": "200"}).output
    assert [name for name, one in options.items() if not one.hidden and name not in shown] == []
    assert "tables such as [store]" in shown


def test_a_command_of_the_group_takes_no_settings() -> None:
    found: list[dict[str, Any]] = []
    app = typer.Typer(cls=BrokerGroup, invoke_without_command=True)

    @app.callback()
    def main(context: typer.Context) -> None:
        found.append(given_settings(context))

    @app.command()
    def show() -> None: ...

    for words in (["--port", "1", "--data", "d"], ["show"]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert found == [{"broker": {"port": 1}, "store": {"directory": Path("d")}}, {}]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--transient-age", "72"], "has no unit"),
        (["--disk-refuse", "101%"], "disk_refuse_percent must be 1 to 100"),
        (["--busy-poll", "1s"], "write a time such as 300us or 3ms"),
        (["--busy-poll", "101ms"], "busy_poll_us must be 0 to 100000"),
        (["--flush", "never"], "flush must be 'always' or 'interval', not 'never'"),
        (["--filter-processes", "-1"], "filter_processes_max must not be negative"),
        (["--metrics", "9464"], "write HOST:PORT for metrics"),
        (["--metrics", "0.0.0.0:9464"], "could read the metrics"),
        (["--archive-window", "1GiB"], "say where the archive is"),
        (["--group", "g2"], "say where the group's record is"),
        (["--record", URL, "--login"], "group.user and group.password_file"),
        (["--record", URL, "--flush", "interval"], "flush=always"),
        (["--record", URL, "--port", "0"], "--advertise"),
        (["--record", "sqlite:///x"], "is in PostgreSQL"),
        (["--archive", "sqlite:///x"], "a database of PostgreSQL"),
        (["--archive", URL, "--archive-backlog", "0"], "must be at least 1"),
        (["--segment-size", "1KiB"], "segment_bytes must be at least 64 KiB"),
    ],
)
def test_a_mistake_is_one_sentence(call: Any, arguments: list[str], sentence: str) -> None:
    done, settings = call(*arguments)
    assert (done.exit_code, settings) == (2, [])
    assert sentence in " ".join(done.output.replace("│", " ").split())


def test_an_address_of_other_machines_needs_tls_or_a_word(started: Any) -> None:
    with pytest.raises(AssertionError, match="insecure"):
        started("--host", "0.0.0.0")
    assert started("--host", "0.0.0.0", "--insecure").insecure
    tls = ("--tls-certificate", "c.pem", "--tls-key", "c.key")
    with pytest.raises(AssertionError, match="login"):
        started("--host", "::", *tls)
    assert started("--host", "::", *tls, "--login").login
    files = started("--host", "::", *tls, "--tls-client-ca", "ca.pem")
    assert (files.tls_certificate, files.tls_key, files.insecure) == (
        Path("c.pem"), Path("c.key"), False,
    )  # fmt: skip


def test_metrics_are_served_where_an_option_says(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started().metrics is None
    assert started("--metrics", "127.0.0.1:9464").metrics == "127.0.0.1:9464"
    assert started("--metrics", "0.0.0.0:9464", "--insecure").metrics == "0.0.0.0:9464"
    monkeypatch.setenv("HEADRACE_METRICS", "[::1]:1")
    assert started().metrics == "[::1]:1"


def test_a_broker_that_is_alone_has_names_for_name_servers(started: Any, call: Any) -> None:
    assert started().names is None
    assert started("--nameservers", "ns:1").names == NamesSettings(servers="ns:1")
    words = (
        "--nameservers",
        "ns:1",
        "--group",
        "g7",
        "--advertise",
        "q:1",
        "--set",
        "group.cluster=c",
    )
    found = started(*words)
    assert found.group is None
    assert found.names == NamesSettings(servers="ns:1", cluster="c", name="g7", advertise="q:1")
    grouped = started("--nameservers", "ns:1", "--record", URL, "--group", "g7")
    assert grouped.group == GroupSettings(record=URL, name="g7")
    assert grouped.names == NamesSettings(servers="ns:1")
    done, _ = call("--set", "names.cluster=c")
    assert done.exit_code == 2
    assert "say where the name servers are" in done.output
