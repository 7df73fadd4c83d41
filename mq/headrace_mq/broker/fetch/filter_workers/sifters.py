"""
The processes that sift: started when there is work, given a job at a time, ended when there is none.

    ready ──no──▶ one is started, the caller does it itself for now
      │ yes
      ▼
    submit ─▶ the next process that is free ─▶ what came of it, or None

Used by `ahead`, which has jobs; uses the operating system.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.fetch.filter_workers.jobs import LENGTH, Job, Sifted, decode_sifted, encoded

__all__ = ["Sifters"]

# A process that has nothing to do gives its memory, some 35 MiB, back after so long.
_IDLE_S = 30.0
# A job is 4 MiB, some milliseconds' work; a disk that takes longer than this for them is no help.
_JOB_S_MAX = 10.0
_START_S_MAX = 30.0
# After a process that failed: what it died of is probably still there.
_PAUSE_S = 30.0
# A process ends with its input, which it sees when its job is done.
_END_S_MAX = 2.0

# Finds this very package, wherever this process has it from, and nothing in the folder that the broker
# happens to be started in.
_START = """
import sys
sys.path[:] = sys.argv[1:]
from headrace_mq.broker.fetch.filter_workers.process import main
main()
"""

# The last one is that of event loops that start no processes.
_FAILURES = (OSError, EOFError, TimeoutError, msgspec.DecodeError, NotImplementedError)

_log = get_logger(__name__)

_Asked = tuple[Job, "asyncio.Future[Sifted | None]"]


class Sifters:
    """Up to so many processes; used on one event loop.

    Args:
        processes_max: how many run at a time, at least one.
        job_s_max: seconds after which a process is given up that has not answered.
        idle_s: seconds without a job after which one ends.

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
        """The processes that take jobs, or will soon."""
        return sorted(self._processes)

    @property
    def waiting(self) -> int:
        """Jobs that no process has begun."""
        return self._jobs.qsize()

    @property
    def at_hand(self) -> bool:
        """Whether a process takes jobs now, or one may be started."""
        return self._ready > 0 or (not self._tasks and self._may_start())

    def ready(self) -> bool:
        """Whether a process takes jobs now; where none does, one is started unless one has failed."""
        if not self._tasks:
            self._start()
        return self._ready > 0

    def submit(self, job: Job) -> "asyncio.Future[Sifted | None]":
        """Has a job done; None comes of it where its process fails."""
        answer: asyncio.Future[Sifted | None] = asyncio.get_running_loop().create_future()
        if self._closed or not self._tasks:
            answer.set_result(None)
            return answer
        self._jobs.put_nowait((job, answer))
        if self._jobs.qsize() > self._free and len(self._tasks) < self._processes_max:
            self._start()
        return answer

    async def aclose(self) -> None:
        """Ends all processes; what they have not done comes out as None."""
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
        task = asyncio.get_running_loop().create_task(self._run(), name="sifting process")
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
        """One process from its start to its end."""
        process = None
        try:
            # In a session of its own: a terminal's Ctrl-C is for the broker, which ends it.
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
                # It may stand still, and would not see the end of its input.
                process.kill()
        finally:
            if process is not None:
                await _end(process)
                del self._processes[process.pid]

    async def _work(self, process: Process) -> None:
        """Gives a process one job after the other, until there has been none for a while."""
        while True:
            self._free += 1
            try:
                async with asyncio.timeout(self._idle_s):
                    job, answer = await self._jobs.get()
            except TimeoutError:
                return
            finally:
                self._free -= 1
            sifted = None
            try:
                assert process.stdin is not None, "it was started with a pipe"
                process.stdin.write(encoded(job))
                async with asyncio.timeout(self._job_s_max):
                    sifted = decode_sifted(await _answer_of(process))
            finally:
                _settle(answer, sifted)


def _settle(answer: "asyncio.Future[Sifted | None]", sifted: Sifted | None) -> None:
    if not answer.done():
        answer.set_result(sifted)


async def _answer_of(process: Process) -> bytes:
    """The next frame; raises EOFError where the process has ended."""
    assert process.stdout is not None, "it was started with a pipe"
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    return await process.stdout.readexactly(length)


async def _end(process: Process) -> None:
    """Waits for the end of a process that has nothing to do any more."""
    assert process.stdin is not None, "it was started with a pipe"
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S_MAX):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
