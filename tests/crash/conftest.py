"""Processes of the bank sample that a test may kill at any moment and start again."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace.settings import Settings

ROOT = Path(__file__).parents[2]
READY_SECONDS_MAX = 120


class Child:
    """One process of the command line, restartable with the same arguments."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.arguments = arguments
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def start(self) -> str:
        """Starts it and returns its ready line."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headrace", *self.arguments,
                stdout=asyncio.subprocess.PIPE, stderr=log, cwd=ROOT,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )  # fmt: skip
        self.starts += 1
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), READY_SECONDS_MAX)
        assert b"ready" in line, self._log.read_text()
        return line.decode().strip()

    async def end(self, number: signal.Signals) -> None:
        """Sends the signal and waits until the process is gone."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(number)
        await asyncio.wait_for(self._process.wait(), READY_SECONDS_MAX)


class Bank:
    """A broker and a command service of the bank sample, with their files in one folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = str(port)
        self.event_store = f"sqlite:///{folder / 'events.db'}"
        self.read_models = f"sqlite:///{folder / 'read.db'}"
        self.address = ""
        self.broker: Child
        self.service: Child

    async def start(self) -> None:
        """Starts both; the broker keeps its port over restarts."""
        data = str(self._folder / "broker")
        log = self._folder / "broker.log"
        self.broker = Child("broker", "--data", data, "--port", self._port, log=log)
        self.address = (await self.broker.start()).rpartition(" ")[2]
        self.service = Child(
            "run", "samples.bank:app", "--broker", self.address,
            "--event-store", self.event_store, "--read-models", self.read_models,
            log=self._folder / "service.log",
        )  # fmt: skip
        await self.service.start()

    @property
    def settings(self) -> Settings:
        """How a client reaches it."""
        return Settings(broker=self.address, result_timeout_ms=120_000)

    async def stop(self) -> None:
        """Ends both in order, by pid."""
        for child in (getattr(self, "service", None), getattr(self, "broker", None)):
            if child is not None:
                await child.end(signal.SIGKILL)


@pytest.fixture
async def bank(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Bank]:
    """A running bank; killed at the end, whatever happened."""
    running = Bank(tmp_path, free_port())
    try:
        await running.start()
        yield running
    finally:
        await running.stop()
