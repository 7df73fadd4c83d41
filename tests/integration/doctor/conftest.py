"""Real brokers and applications in processes of their own, and what `headrace doctor` says of them.

Commands run in the test's own process: what is examined are brokers and applications, and each process of a
command takes its start, which is most of the time of a doctor.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace.cli.sentences import sentence_of

SECONDS_MAX = 120


class Said(NamedTuple):
    """What a doctor said: its exit status, and its checks by name."""

    status: int
    checks: dict[str, dict[str, str]]
    text: str

    def state(self, name: str) -> str:
        return self.checks[name]["state"] if name in self.checks else "missing"

    @property
    def troubles(self) -> dict[str, str]:
        """What is not well, by name."""
        return {name: one["state"] for name, one in self.checks.items() if one["state"] != "ok"}


class Deployment:
    """A folder with processes that end with the test."""

    def __init__(self, folder: Path, ends: ExitStack, free_port: Callable[[], int]) -> None:
        self.folder, self._ends, self._free_port = folder, ends, free_port
        self.address = ""
        self.environment: dict[str, str] = {}

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        log = (self.folder / "log").open("a", encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "headrace", *words], cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=log, env=self._surroundings(),
        )  # fmt: skip
        log.close()
        self._ends.callback(end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "ready" in line, (self.folder / "log").read_text(encoding="utf-8")
        return process

    def _surroundings(self) -> dict[str, str]:
        own = {
            name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")
        }
        return (
            own | {"PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path])} | self.environment
        )

    def broker(self, *options: str, data: str = "broker") -> "subprocess.Popen[str]":
        """Starts a broker; the last one is that of the doctor and the application."""
        port = self._free_port()
        self.address = f"127.0.0.1:{port}"
        options = (*options, "--segment-size", "1MiB")
        return self._start(
            "broker", "--data", str(self.folder / data), "--port", str(port), *options
        )

    def broker_again(self, data: str = "broker") -> "subprocess.Popen[str]":
        """Starts the last broker again, at its address."""
        port = self.address.rpartition(":")[2]
        return self._start("broker", "--data", str(self.folder / data), "--port", port)

    def application(self, path: str, *options: str) -> "subprocess.Popen[str]":
        """Starts an application."""
        return self._start("run", path, "--broker", self.address, *options)

    def process(self, *words: str) -> str:
        """Runs a command of `headrace` to its end in a process of its own; returns what it printed."""
        return self.python("-P", "-m", "headrace", *words)

    def run(self, *words: str) -> str:
        """Runs a command of `headrace` to its end; returns what it printed."""
        status, output = self._call(*words)
        assert status == 0, output
        return output

    def _call(self, *words: str) -> tuple[int, str]:
        """Runs a command as `main` does, which has one sentence for an error; returns its status and output."""
        known = set(sys.modules)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace.cli.logs.configure_logs", lambda *_, **__: None)
            patch.chdir(self.folder)
            patch.syspath_prepend(self.folder)
            for name in os.environ.keys() - self._surroundings().keys():
                patch.delenv(name)
            done = CliRunner().invoke(headrace.cli._command_line(), words, env=self.environment)
        # Of an application that was written for one test.
        for name in sys.modules.keys() - known:
            if str(self.folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            sentence = sentence_of(done.exception)
            if sentence is None:
                raise done.exception
            return 2, sentence
        return done.exit_code, done.stdout

    def python(self, *words: str) -> str:
        """Runs a program of the folder."""
        done = subprocess.run(
            [sys.executable, *words], cwd=self.folder, text=True, check=False, capture_output=True,
            env=self._surroundings(), timeout=SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout

    def broker_of_a_group(self, record: str, data: str) -> "subprocess.Popen[str]":
        """Starts a further broker of a group, which is ready when it leads; returns at once."""
        port = self._free_port()
        self.address = f"127.0.0.1:{port}"
        log = (self.folder / "log").open("a", encoding="utf-8")
        process = subprocess.Popen(
            [
                sys.executable, "-P", "-m", "headrace", "broker", "--data", str(self.folder / data), "--port", str(port),
                "--record", record, "--segment-size", "1MiB",
            ],
            cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=log, env=self._surroundings(),
        )  # fmt: skip
        log.close()
        self._ends.callback(end, process)
        return process

    def doctor(self, *words: str, address: str | None = None) -> Said:
        """Runs the doctor; none of its answers is a traceback."""
        status, output = self._call("doctor", *words, "--json", "--broker", address or self.address)
        found: Any = json.loads(output)
        checks = {one["name"]: one for one in found["checks"]}
        assert status == {"ok": 0, "warning": 1, "failed": 2}[found["state"]]
        assert all(one["advice"] for one in found["checks"] if one["state"] != "ok")
        return Said(status, checks, output)

    def settled(self, *words: str) -> Said:
        """Returns what the doctor says once nothing is wrong any more; an application takes a moment to begin."""
        deadline = time.monotonic() + SECONDS_MAX
        said = self.doctor(*words)
        while said.troubles and time.monotonic() < deadline:
            said = self.doctor(*words)
        return said


def end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@pytest.fixture
def deployment(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Deployment]:
    with ExitStack() as ends:
        yield Deployment(tmp_path, ends, free_port)
