"""
The demo's processes: started, watched, killed and stopped by their own process id.

Each appends its log to a file; its standard output is read for the line that says it is ready.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["Child", "ChildFailed", "complete", "running"]

ROOT: Final = Path(__file__).parents[3]
# A broker that recovers a long log, or a service that catches up with it, is ready long before.
READY_SECONDS_MAX: Final = 60
# What SIGTERM gets to finish what is under way, before SIGKILL.
STOP_SECONDS_MAX: Final = 20


class ChildFailed(Exception):
    """A process ended that should not have; the sentence says where its log is."""


class Child:
    """A `headrace` process that serves until it is stopped.

    Args:
        name: for sentences.
        arguments: of the command `headrace`.
        log: the file that its log is appended to.
        group: where an unexpected end of the process is raised, as `ChildFailed`.
    """

    def __init__(self, name: str, *arguments: str, log: Path, group: asyncio.TaskGroup) -> None:
        self.name = name
        self._arguments = arguments
        self._log = log
        self._group = group
        self._process: asyncio.subprocess.Process | None = None
        self._told_to_end: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Starts the process and returns the line by which it says that it is ready.

        Raises:
            ChildFailed: it ended, or said nothing for a minute.
        """
        process = self._process = await _spawn(*self._arguments, log=self._log)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                line = (await process.stdout.readline()).decode().strip()
        except TimeoutError:
            raise self._failed(f"was not ready within {READY_SECONDS_MAX} s") from None
        if not line:
            raise self._failed("ended before it was ready")
        self._group.create_task(self._watch(process), name=f"watch {self.name}")
        return line

    async def kill(self) -> None:
        """Ends the process with SIGKILL, as a crash would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ends the process with SIGTERM, and with SIGKILL if that takes too long."""
        await self._end(signal.SIGTERM)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        if self._told_to_end is not process:
            raise self._failed(f"ended with status {status}")

    async def _end(self, number: signal.Signals) -> None:
        self._told_to_end = self._process
        if self._process is not None:
            await _end(self._process, number)

    def _failed(self, sentence: str) -> ChildFailed:
        return ChildFailed(f"the {self.name} {sentence}; its log is {self._log}")


@asynccontextmanager
async def running(child: Child) -> AsyncIterator[str]:
    """Starts a child, yields its ready line, and stops it at the end, also after an error."""
    try:
        yield await child.start()
    finally:
        await child.stop()


async def complete(*arguments: str, log: Path) -> tuple[int, str]:
    """Runs a `headrace` command to its end; returns its exit status and its standard output."""
    process = await _spawn(*arguments, log=log)
    assert process.stdout is not None
    try:
        output = await process.stdout.read()
        return await process.wait(), output.decode()
    finally:
        await _end(process, signal.SIGKILL)


async def _spawn(*arguments: str, log: Path) -> asyncio.subprocess.Process:
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            # A session of its own: Ctrl-C reaches the demo alone, which stops its children in
            # order, and what a child starts can be ended with it.
            start_new_session=True,
        )


async def _end(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Ends a process and its children; returns when the process is gone."""
    if process.returncode is not None:
        return
    try:
        process.send_signal(number)
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
