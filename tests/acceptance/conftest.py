"""The demo as a user starts it: a process with arguments, an exit status and what it prints."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 280


@dataclass(frozen=True)
class Finished:
    """A demo that has ended."""

    status: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        """What it printed, whatever the width of its lines."""
        return " ".join(self.output.split())

    @property
    def result(self) -> dict[str, Any]:
        """The JSON of its last line."""
        result: dict[str, Any] = json.loads(self.output.strip().splitlines()[-1])
        return result


class Demo:
    """A demo that may be under way; everything it starts has its folder in its command line."""

    def __init__(self, folder: Path, *arguments: str, java: bool) -> None:
        environment = dict(os.environ)
        if not java:
            environment["JAVA_HOME"] = str(folder / "no-java-here")
        self._folder = folder
        # A shell that starts the suite in its background has it ignore Ctrl-C, which children inherit.
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "demo", "--data", str(folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # As after `pip install`: the samples are not in this folder.
            cwd=folder.parent,
            env=environment,
        )
        signal.signal(signal.SIGINT, inherited)

    def wait(self) -> Finished:
        """Waits for its end."""
        output, errors = self.process.communicate(timeout=SECONDS_MAX)
        return Finished(self.process.returncode, output, errors)

    def wait_until(self, words: str) -> None:
        """Reads its output until a line has these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"the demo ended before it said {words!r}")

    def children(self, word: str = "") -> list[int]:
        """Returns the ids of the processes that work in its folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended meanwhile
            if str(self._folder) in command and "headrace" in command and word in command:
                found.append(int(entry.name))
        return found

    def close(self) -> None:
        """Ends whatever is left of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        for child in self.children():
            os.kill(child, signal.SIGKILL)


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demos in one folder of the test's own; ends them at the test's end."""
    started: list[Demo] = []

    def start(*arguments: str, java: bool = False) -> Demo:
        started.append(Demo(tmp_path / "demo", *arguments, java=java))
        return started[-1]

    yield start
    for demo in started:
        demo.close()


@pytest.fixture
def root() -> Path:
    """The folder of the project."""
    return ROOT
