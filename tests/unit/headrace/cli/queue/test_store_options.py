"""How the options of `headrace broker` become settings of its store."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import headrace_mq.broker.server
from headrace.cli.amounts import duration_ms, percent, size_bytes
from headrace.cli.queue.broker import broker
from headrace_mq.settings import BrokerSettings, StoreSettings

# What is written on the command line, and the setting and value that it stands for.
GIVEN = {
    "--flush-interval": ("50ms", "flush_interval_ms", 50),
    "--segment-size": ("64MiB", "segment_bytes", 64 << 20),
    "--tail-cache": ("0", "tail_cache_bytes", 0),
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

PARSERS = {"_ms": duration_ms, "bytes": size_bytes, "percent": percent}


@pytest.fixture
def command() -> Any:
    app = typer.Typer()
    app.command()(broker)
    return app


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: Any) -> Any:
    """Calls the command; returns the settings that a broker would have got."""

    def call(*arguments: str) -> BrokerSettings:
        settings: list[BrokerSettings] = []
        monkeypatch.setattr(
            headrace_mq.broker.server, "run", lambda found, ready: settings.append(found)
        )
        done = CliRunner().invoke(command, ["--data", str(tmp_path), *arguments])
        assert done.exit_code == 0, done.output
        (found,) = settings
        return found

    return call


def test_what_is_not_given_is_the_default(started: Any, tmp_path: Path) -> None:
    assert started() == BrokerSettings(store=StoreSettings(directory=tmp_path))


def test_what_is_given_reaches_the_store(started: Any, tmp_path: Path) -> None:
    words = [word for option, (text, _, _) in GIVEN.items() for word in (option, text)]
    changed = {setting: value for _, setting, value in GIVEN.values()}
    expected = StoreSettings(directory=tmp_path, flush="interval", **changed)
    assert started(*words, "--flush", "interval").store == expected


def test_there_are_as_many_filter_processes_as_one_says(started: Any) -> None:
    assert started().filter_processes_max == 2
    assert started("--filter-processes", "0").filter_processes_max == 0


def test_a_busy_poll_is_given_in_microseconds(started: Any) -> None:
    assert started("--busy-poll", "300us").busy_poll_us == 300
    assert started("--busy-poll", "3ms").busy_poll_us == 3_000


def test_the_help_tells_the_defaults_of_the_settings(command: Any, tmp_path: Path) -> None:
    defaults = StoreSettings(directory=tmp_path)
    options = {option.opts[0]: option for option in typer.main.get_command(command).params}
    for name, (_, setting, _) in GIVEN.items():
        parse = next((p for part, p in PARSERS.items() if part in setting), int)
        assert parse(options[name].show_default) == getattr(defaults, setting), name


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--transient-age", "72"], "has no unit"),
        (["--disk-refuse", "101%"], "disk_refuse_percent must be 1 to 100"),
        (["--busy-poll", "1s"], "write a time such as 300us or 3ms"),
        (["--busy-poll", "101ms"], "busy_poll_us must be 0 to 100000"),
        (["--segment-size", "1KiB"], "segment_bytes must be at least 64 KiB"),
    ],
)
def test_a_mistake_is_one_sentence(
    command: Any, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = CliRunner().invoke(command, ["--data", str(tmp_path), *arguments])
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.replace("│", " ").split())
