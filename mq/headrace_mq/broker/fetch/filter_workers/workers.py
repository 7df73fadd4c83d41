"""
The filter workers: processes that start when there is work, run one job at a time, and end when idle.

    ready ──no──▶ a process starts; the caller filters itself for now
      │ yes
      ▼
    submit ─▶ the next free process ─▶ its result, or None

Used by `read_ahead`, which has jobs; uses the operating system.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.fetch.filter_workers.jobs import (
    LENGTH,
    Job,
    JobResult,
    decode_result,
    encoded,
)

__all__ = ["FilterWorkers"]

# An idle process ends after this time and frees its memory, some 35 MiB.
_IDLE_S = 30.0
# A job is 4 MiB, some milliseconds of work. If a disk takes longer than this, workers do not help.
_JOB_S_MAX = 10.0
_START_S_MAX = 30.0
# The pause after a process has failed: the cause is probably still there.
_PAUSE_S = 30.0
# A process ends when its input closes; it notices after its current job.
_END_S_MAX = 2.0

# Imports this very package from where this process has it, and nothing from the broker's current
# directory.
_START = """
import sys
sys.path[:] = sys.argv[1:]
from headrace_mq.broker.fetch.filter_workers.process import main
main()
"""

# Event loops that cannot start processes raise the last one.
_FAILURES = (OSError, EOFError, TimeoutError, msgspec.DecodeError, NotImplementedError)

_log = get_logger(__name__)

_Asked = tuple[Job, "asyncio.Future[JobResult | None]"]


class FilterWorkers:
    """Up to `processes_max` worker processes; used on one event loop.

    Args:
        processes_max: the most processes at a time, at least one.
        job_s_max: seconds that a job may take; then its process is killed.
        idle_s: seconds without a job after which a process ends.

    Attributes:
        on_rest: called when the last process has ended.
    """

    def __init__(
        self, processes_max: int, *, job_s_max: float = _JOB_S_MAX, idle_s: float = _IDLE_S
    ) -> None:
        self._processes_max = processes_max
        self._job_s_max = job_s_max
        self._idle_s = idle_s
        self._jobs: asyncio.Queue[_Asked] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: dict[int, Process] = {}
        self._free = self._ready = 0
        self._closed = False
        self._paused_until = 0.0
        self.on_rest: Callable[[], None] = lambda: None

    @property
    def pids(self) -> list[int]:
        """The ids of all running processes."""
        return sorted(self._processes)

    @property
    def waiting(self) -> int:
        """The jobs that no process has begun."""
        return self._jobs.qsize()

    @property
    def at_hand(self) -> bool:
        """Whether a process accepts jobs now, or one may be started."""
        return self._ready > 0 or (not self._tasks and self._may_start())

    def ready(self) -> bool:
        """Whether a process accepts jobs now; if there is none, starts one unless one has just failed."""
        if not self._tasks:
            self._start()
        return self._ready > 0

    def submit(self, job: Job) -> "asyncio.Future[JobResult | None]":
        """Runs a job in a process; returns a future of its result, or of None if the process fails."""
        answer: asyncio.Future[JobResult | None] = asyncio.get_running_loop().create_future()
        if self._closed or not self._tasks:
            answer.set_result(None)
            return answer
        self._jobs.put_nowait((job, answer))
        if self._jobs.qsize() > self._free and len(self._tasks) < self._processes_max:
            self._start()
        return answer

    async def aclose(self) -> None:
        """Ends all processes; the result of their unfinished jobs is None."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _may_start(self) -> bool:
        return not self._closed and asyncio.get_running_loop().time() >= self._paused_until

    def _start(self) -> None:
        if not self._may_start():
            return
        task = asyncio.get_running_loop().create_task(self._run(), name="filter worker")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if self._tasks:
            return
        while not self._jobs.empty():
            _settle(self._jobs.get_nowait()[1], None)
        self.on_rest()

    async def _run(self) -> None:
        """Runs one process from its start to its end."""
        process = None
        try:
            # In its own session: a terminal's Ctrl-C reaches only the broker, which ends the process.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-c", _START, *filter(None, sys.path),
                stdin=PIPE, stdout=PIPE, start_new_session=True,
            )  # fmt: skip
            self._processes[process.pid] = process
            async with asyncio.timeout(_START_S_MAX):
                await _answer_of(process)
            self._ready += 1
            try:
                await self._work(process)
            finally:
                self._ready -= 1
        except _FAILURES as error:
            self._paused_until = asyncio.get_running_loop().time() + _PAUSE_S
            _log.warning(
                "a process that filters backlogs failed; the broker filters by itself for a while",
                error=str(error) or type(error).__name__,
            )
            if process is not None and process.returncode is None:
                # It may hang, and would not notice that its input has closed.
                process.kill()
        finally:
            if process is not None:
                await _end(process)
                del self._processes[process.pid]

    async def _work(self, process: Process) -> None:
        """Gives a process one job after the other, until it has been idle for a while."""
        while True:
            self._free += 1
            try:
                async with asyncio.timeout(self._idle_s):
                    job, answer = await self._jobs.get()
            except TimeoutError:
                return
            finally:
                self._free -= 1
            result = None
            try:
                assert process.stdin is not None, "it was started with a pipe"
                process.stdin.write(encoded(job))
                async with asyncio.timeout(self._job_s_max):
                    result = decode_result(await _answer_of(process))
            finally:
                _settle(answer, result)


def _settle(answer: "asyncio.Future[JobResult | None]", result: JobResult | None) -> None:
    if not answer.done():
        answer.set_result(result)


async def _answer_of(process: Process) -> bytes:
    """Reads the next frame; raises EOFError if the process has ended."""
    assert process.stdout is not None, "it was started with a pipe"
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    return await process.stdout.readexactly(length)


async def _end(process: Process) -> None:
    """Closes a process's input and waits for its end."""
    assert process.stdin is not None, "it was started with a pipe"
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S_MAX):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
