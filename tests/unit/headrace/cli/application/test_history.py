"""`headrace history`: what it refuses, and what it says of a folder without parts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DefinitionError, ProjectionError, SchemaOutOfDate

APP = ("--app", "samples.bank:app")


def test_an_empty_folder_has_no_parts_and_cannot_be_verified(run: Any, tmp_path: Path) -> None:
    assert "holds no parts" in run("history", "list", str(tmp_path)).output
    assert run("history", "list", str(tmp_path), "--json").output == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--every", "5"), "has no unit"),
        (("--every", "0"), "use a time above 0"),
        (("--every", "1h", "--once"), "use one of --once and --every"),
        (("--part-bytes", "5"), "has no unit"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    run: Any, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    done = run("history", "seal", str(tmp_path), *APP, *options)
    assert (done.status, says in done.output) == (2, True), done


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "use one of --keep and --before"),
        (("--keep", "1d", "--before", "0:1"), "use one of --keep and --before"),
        (("--before", "7"), "write it like 0:1000,1:2000"),
        (("--before", "0:-1"), "count from 0"),
    ],
)
def test_offsets_to_trim_must_be_said_once(
    run: Any, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    done = run("history", "trim", str(tmp_path), *APP, *options)
    assert (done.status, says in done.output) == (2, True), done


def test_without_an_event_store_nothing_is_written(run: Any, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from headrace.cli.application.history import commands

    for url, error in (
        (f"sqlite:///{tmp_path / 'no.db'}", SchemaOutOfDate),
        ("memory://", DefinitionError),
    ):
        arguments = ["seal", str(tmp_path / "out"), *APP, "--event-store", url]
        assert isinstance(CliRunner().invoke(commands, arguments).exception, error)
    assert list((tmp_path / "out").glob("export-*")) == []
    done = CliRunner().invoke(commands, ["verify", str(tmp_path / "out"), *APP])
    assert isinstance(done.exception, ProjectionError)


# The event loop catches what its callbacks raise, and goes on.
IN_A_CALLBACK = """
import asyncio, os, signal
from headrace.cli.application.history import _stop_on_signals

async def work():
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.{name})
    await asyncio.get_running_loop().create_future()

_stop_on_signals()
asyncio.run(work())
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_sealing_wherever_the_work_is(name: str) -> None:
    script = IN_A_CALLBACK.format(name=name)
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, timeout=120, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
