"""
Commands through the whole path, each part in a process of its own.

    client -> broker, fsync -> service -> store, fsync -> event topic, fsync -> reply

Sits between: the loads, which run in this process, and a broker and a service of the run's own.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mq.processes import cpu_seconds
from headrace.app import App
from headrace.bus import CommandBus
from headrace.settings import Settings

__all__ = ["Deployment", "deployed"]

# A process that is not ready by then never will be.
PATIENCE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A running application, and the processor time of each process so far, in seconds."""

    bus: CommandBus
    cpu_seconds: dict[str, Callable[[], float]]


@asynccontextmanager
async def deployed(
    app_path: str, app: App, *, event_store: str, read_models: str
) -> AsyncIterator[Deployment]:
    """Starts a broker, a service and a client's bus; ends them with the block."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        line, broker = await stack.enter_async_context(
            _process(
                "broker", "--data", str(folder / "mq"), "--port", "0", log=folder / "broker.log"
            )
        )
        address = line.rpartition(" ")[2]
        _, service = await stack.enter_async_context(
            _process(
                "run", app_path, "--broker", address,
                "--event-store", event_store, "--read-models", read_models,
                log=folder / "service.log",
            )
        )  # fmt: skip
        bus = await stack.enter_async_context(app.client(Settings(broker=address)))
        pids = {"service": service, "broker": broker, "client": os.getpid()}
        yield Deployment(bus=bus, cpu_seconds={name: _reader(pid) for name, pid in pids.items()})


def _reader(pid: int) -> Callable[[], float]:
    return lambda: cpu_seconds(pid)


@asynccontextmanager
async def _process(*arguments: str, log: Path) -> AsyncIterator[tuple[str, int]]:
    """Runs a `headrace` subcommand until the block ends; yields its ready line and process id."""
    with log.open("ab") as out:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", *arguments,
            stdout=asyncio.subprocess.PIPE, stderr=out,
        )  # fmt: skip
    try:
        assert child.stdout is not None
        line = (await asyncio.wait_for(child.stdout.readline(), PATIENCE_S)).decode().strip()
        if "ready" not in line:
            raise SystemExit(f"headrace {arguments[0]} did not start:\n{log.read_text()}")
        yield line, child.pid
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)
            await child.wait()
