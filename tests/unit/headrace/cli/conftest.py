"""A broker in a process of its own, and the commands that administer it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

import headrace.cli
from headrace_mq.errors import MessageQueueError


class Done(NamedTuple):
    """How a command ended: `error` is what `main` would have told in one sentence."""

    status: int
    output: str
    error: MessageQueueError | None

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table, by runs of spaces; the header comes first."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]

    @property
    def json(self) -> Any:
        assert self.error is None, self
        return json.loads(self.output)


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def _logs_of_its_own(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Keeps a command from giving every logger of this process a stream that is closed soon."""
    if "real_logs" in request.fixturenames:
        yield
        return
    monkeypatch.setattr("headrace.cli.logs.configure_logs", lambda *_, **__: None)
    with capture_logs():
        yield


@pytest.fixture
def real_logs() -> None:
    """For a test of the logs themselves: they are set up as a command does it."""


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """Runs a broker until the block ends; yields its address."""
    command = [sys.executable, "-m", "headrace", "broker", "--data", str(folder), "--port", "0"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert "ready on " in line, (folder / "log").read_text(encoding="utf-8")
            yield line.rsplit(" ", 1)[1].strip()
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.fixture(scope="session")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One broker for all commands of this folder; each test has topics and groups of its own."""
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def run(broker_address: str) -> Run:
    """Runs a command against the broker; an error of the queue is kept, any other is raised."""
    command_line = headrace.cli._command_line()
    environment = {"HEADRACE_BROKER": broker_address, "TERM": "dumb"}

    def run_one(*arguments: str, typed: str | bytes | None = None) -> Done:
        done = CliRunner().invoke(command_line, arguments, env=environment, input=typed)
        if done.exception and not isinstance(done.exception, SystemExit | MessageQueueError):
            raise done.exception
        error = done.exception if isinstance(done.exception, MessageQueueError) else None
        return Done(2 if error else done.exit_code, done.output, error)

    return run_one


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    name = re.sub(r"\W", "-", request.node.name)
    return f"{Path(request.path).stem}.{name[:20]}{name[-50:]}.{os.getpid()}"
