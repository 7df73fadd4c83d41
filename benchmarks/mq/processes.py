"""
Processes that do as they are told: lines of JSON in, lines of JSON out.

A client process is told its task once, says when it is ready, and then runs it at each "go".
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

__all__ = ["Child", "broker", "client", "cpu_seconds", "resident_bytes", "start"]

# A process that says nothing for so long hangs.
PATIENCE_S = 120


class Child:
    """A process and its conversation."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def hear(self) -> str:
        """Waits for the next line the process says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
        if not line:
            raise SystemExit("a process of the benchmark ended early; its error stands above")
        return line.decode().strip()

    def say(self, word: str) -> None:
        """Tells the process one line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def run(self) -> dict[str, Any]:
        """Lets the task run once and returns what it says of itself."""
        self.say("go")
        said: dict[str, Any] = json.loads(await self.hear())
        return said

    async def leave(self) -> None:
        """Closes what the process listens to and waits until it has put its own things away."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), PATIENCE_S)
        finally:
            await self.end()

    async def end(self) -> None:
        """Stops the process and waits until it is gone."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await self._process.wait()


async def start(module: str, *arguments: str) -> Child:
    return Child(
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            # It finds the benchmarks wherever this process has found them.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    )  # fmt: skip


@asynccontextmanager
async def broker(
    directory: Path,
    flush: str,
    kept_bytes_max: int = 0,
    busy_poll_us: int = 0,
    certificates: Path | None = None,
    metrics: str = "",
) -> AsyncIterator[tuple[Child, str]]:
    """A broker process and its address; with a limit it deletes the oldest messages beyond.

    With the files of `headrace certificates make` it speaks TLS; with `metrics`, HOST:PORT, it serves these.
    """
    more = [str(kept_bytes_max), str(busy_poll_us)]
    if certificates or metrics:
        more += [str(certificates or ""), *([metrics] if metrics else [])]
    child = await start("benchmarks.mq.broker", str(directory), flush, *more)
    try:
        yield child, (await child.hear()).removeprefix("ready ")
    finally:
        await child.end()


@asynccontextmanager
async def client(task: str, address: str, settings: Mapping[str, Any]) -> AsyncIterator[Child]:
    """A client process that is ready for its first run."""
    child = await start("benchmarks.mq.client", task, address, json.dumps(settings))
    try:
        await child.hear()
        yield child
    finally:
        await child.end()


def cpu_seconds(pid: int) -> float:
    """The processor time that a process and its children have taken so far, in seconds (Linux)."""
    seconds = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        seconds += int((thread / "schedstat").read_text().split()[0]) / 1e9
        seconds += sum(map(cpu_seconds, map(int, (thread / "children").read_text().split())))
    return seconds


def resident_bytes(pid: int) -> int:
    """The memory a process holds, in bytes (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
