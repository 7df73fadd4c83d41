"""
The supervised process: its start, its signals, and the lines of its two output streams.

Used by `supervisor`, which decides when a process is started or ended.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

__all__ = ["Child", "OutputTail"]

# One turn of reading; as much as a pipe of Linux holds.
_CHUNK_BYTES = 64 << 10
# A line of standard output beyond this is not the line of readiness.
_LINE_BYTES_MAX = 4 << 10
# After the process's end its streams end too, unless it left a process behind that holds them.
_STREAMS_S_MAX = 1.0


class OutputTail:
    """The end of a stream of lines, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._held = bytearray()
        self._bytes_max = bytes_max
        self._cut = False

    def feed(self, chunk: bytes) -> None:
        """Takes what came, and forgets what is too far back."""
        self._held += chunk
        if (over := len(self._held) - self._bytes_max) > 0:
            del self._held[:over]
            self._cut = True

    def text(self) -> str:
        """The last lines; a line that was cut is left out, unless it is the only one."""
        held = bytes(self._held)
        if self._cut and b"\n" in held[:-1]:
            held = held[held.index(b"\n") + 1 :]
        return held.decode("utf-8", "replace")


class Child:
    """One run of the process.

    Args:
        process: started, with pipes for both streams.
        stderr_bytes_max: how much of its standard error is kept.
        said: called with each line of its standard output, without its end.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        stderr_bytes_max: int,
        said: Callable[[str], None],
    ) -> None:
        self._process = process
        self._said = said
        self._errors = OutputTail(stderr_bytes_max)
        self._streams = (
            asyncio.create_task(self._listen(), name="standard output"),
            asyncio.create_task(self._pass_on(), name="standard error"),
        )

    @classmethod
    async def start(
        cls, command: Sequence[str], *, stderr_bytes_max: int, said: Callable[[str], None]
    ) -> "Child":
        """Starts the process in a session of its own: a terminal's Ctrl-C reaches it once, from us.

        Raises:
            OSError: the system could not start it.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_CHUNK_BYTES,
            start_new_session=True,
        )
        return cls(process, stderr_bytes_max=stderr_bytes_max, said=said)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def last_lines(self) -> str:
        """The end of what it wrote to standard error."""
        return self._errors.text()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, which a process that stands still gets too; to an ended one none."""
        if self._process.returncode is not None:
            return
        # Not by `send_signal`, which asks for the status first: where the process has just ended,
        # it takes the status away from asyncio's own waiting, which then says 255.
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            # Until it goes on, a stopped process takes no signal but SIGKILL.
            os.kill(self.pid, signal.SIGCONT)

    async def ended(self) -> int:
        """Waits for its end; returns the exit status, or the negative number of a signal."""
        status = await self._process.wait()
        _, open_still = await asyncio.wait(self._streams, timeout=_STREAMS_S_MAX)
        for task in open_still:
            task.cancel()
        return status

    async def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        line = b""
        while chunk := await stream.read(_CHUNK_BYTES):
            *lines, line = (line + chunk).split(b"\n")
            line = line[-_LINE_BYTES_MAX:]
            for one in lines:
                # The listener may be gone. Reading goes on, or the process would block on a full pipe.
                with suppress(OSError):
                    self._said(one.decode("utf-8", "replace"))

    async def _pass_on(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while chunk := await stream.read(_CHUNK_BYTES):
            self._errors.feed(chunk)
            with suppress(OSError):
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
