"""How the options of `headrace broker` become settings of its archive."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import headrace_mq.broker.server
from headrace.cli.queue.broker import broker
from headrace_mq.settings import ArchiveSettings, BrokerSettings

URL = "postgresql://me@host/archive"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Calls the command; returns its outcome and the settings that brokers would have got."""
    app, settings = typer.Typer(), []
    app.command()(broker)
    monkeypatch.setattr(
        headrace_mq.broker.server, "run", lambda found, ready: settings.append(found)
    )

    def run(*arguments: str) -> tuple[Any, list[BrokerSettings]]:
        return CliRunner().invoke(app, ["--data", str(tmp_path), *arguments]), settings

    return run


def test_a_broker_has_no_archive_unless_it_is_named(call: Any) -> None:
    _, (settings,) = call()
    assert settings.archive is None


def test_what_is_given_is_the_archives(call: Any) -> None:
    _, (settings,) = call("--archive", URL, "--archive-window", "1GiB", "--archive-backlog", "2GiB")
    assert settings.archive == ArchiveSettings(
        url=URL, window_bytes=1 << 30, backlog_bytes_max=2 << 30
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--archive-window", "1GiB"], "say where the archive is"),
        (["--archive", "sqlite:///x"], "a database of PostgreSQL"),
        (["--archive", URL, "--archive-backlog", "0"], "must be at least 1"),
    ],
)
def test_what_makes_no_archive_is_refused(call: Any, arguments: list[str], sentence: str) -> None:
    done, settings = call(*arguments)
    assert (done.exit_code, settings) == (2, [])
    assert sentence in " ".join(done.output.replace("│", " ").split())
