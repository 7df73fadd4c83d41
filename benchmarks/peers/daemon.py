"""Server processes of other makers: started on loopback, heard until they listen, stopped by pid."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["INSTALLED", "daemon", "free_port", "program"]

# Where `benchmarks/peers/install.sh` unpacks Debian's packages.
INSTALLED = Path(__file__).parents[2] / "var" / "peers"

# A server that does not listen after so long has failed; RabbitMQ takes ten seconds.
PATIENCE_S = 60
# One that has not put its things away after so long is ended without: nobody needs them.
LEAVING_S_MAX = 20


def program(path: str) -> Path:
    """The path of an installed program.

    Raises:
        FileNotFoundError: it is not installed; says how to.
    """
    found = INSTALLED / path
    if not found.exists():
        raise FileNotFoundError(f"{found.name} is not installed: run `make peers` first")
    return found


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens at just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def daemon(
    arguments: Sequence[str | Path],
    *,
    folder: Path,
    port: int,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[int]:
    """Runs a server until the end of the block; gives its pid once it listens at the port.

    Raises:
        RuntimeError: it ended or does not listen; with the end of what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "output.log"
    libraries = INSTALLED / "usr/lib/x86_64-linux-gnu"
    with said.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *map(str, arguments),
            cwd=folder,
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries), **(environment or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        await _listening(process, port, said)
        yield process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), LEAVING_S_MAX)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int, said: Path) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + PATIENCE_S
    while process.returncode is None and loop.time() < ends:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise RuntimeError(f"a server did not start; it said: {said.read_text()[-2_000:]}")
