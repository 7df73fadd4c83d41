"""
An asyncio event loop on which time is a number: it jumps to the next timer when nothing is left to do.

Callbacks run in the order asyncio promises. Where it promises none (timers that are due together)
a seeded generator decides, so that a run is repeated by its seed. Every callback belongs to the
simulated process in whose context it was scheduled: a stopped process leaves its callbacks lying.

Used by the simulation, its clock and its network.
"""

import asyncio
import heapq
import random
from asyncio import _set_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeVar, cast

from headrace_mq.testing.processes import PROCESS, Process

__all__ = ["SimulatedLoop", "SimulationLivelocked", "SimulationStalled", "elapse"]

T = TypeVar("T")

# Callbacks without time passing after which something is going round in circles.
STEPS_PER_INSTANT_MAX = 200_000
# What was cancelled may still say goodbye for so long, in simulated time.
RUN_OUT_S = 60.0
# A job that leaves for a thread is back after between these; two of one thread are never due together.
JOB_S_MIN, JOB_S_MAX = 0.000_001, 0.003


class SimulationStalled(RuntimeError):
    """Nothing is scheduled any more, and what was waited for has not happened."""


class SimulationLivelocked(RuntimeError):
    """Callbacks schedule callbacks for ever, without time passing."""


class Closable(Protocol):
    """What listens until it is closed."""

    def close(self) -> None:
        """Listens no more."""
        ...


class Network(Protocol):
    """What the loop asks of a network."""

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """As `create_connection`."""
        ...

    def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Closable:
        """As `create_server`."""
        ...


class _Step(asyncio.Handle):
    """A callback and the process it belongs to."""

    __slots__ = ("process",)

    process: Process | None

    def run(self) -> None:
        self._run()


class _Timer(asyncio.TimerHandle):
    """A callback at a time."""

    __slots__ = ("process",)

    process: Process | None

    def run(self) -> None:
        self._run()


class SimulatedLoop:
    """The loop: of asyncio's, all that code without sockets, signals and child processes uses.

    Args:
        chosen: decides what asyncio leaves open.

    Attributes:
        network: carries the connections; set before the first one.
        failures: what the exception handler was told, by process.
        steps: callbacks run so far.
    """

    def __init__(self, chosen: random.Random) -> None:
        self._chosen = chosen
        self._now = 0.0
        self._ready: deque[_Step | _Timer] = deque()
        self._timers: list[tuple[float, float, int, _Timer]] = []
        self._count = 0
        self._closed = False
        self._running = False
        self._jobs_done_at: dict[object, float] = {}
        self.network: Network
        self.failures: list[tuple[Process | None, dict[str, Any]]] = []
        self.steps = 0

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        # asyncio looks at no type, and most of what the type has would say that it is not there.
        return cast("asyncio.AbstractEventLoop", self)

    # --- running --------------------------------------------------------------------------------

    def run_until_complete(self, future: Awaitable[T]) -> T:
        """Runs until the future is done, and returns its result.

        Raises:
            SimulationStalled: it can never be done.
            SimulationLivelocked: callbacks go round in circles.
        """
        self._running = True
        _set_running_loop(self._loop)
        try:
            task = asyncio.ensure_future(future, loop=self._loop)
            while not task.done():
                self._turn()
            return task.result()
        finally:
            _set_running_loop(None)
            self._running = False

    def _turn(self) -> None:
        if not self._ready:
            self._pass_time()
        for _ in range(STEPS_PER_INSTANT_MAX):
            if not self._ready:
                return
            step = self._ready.popleft()
            if step.cancelled():
                continue
            if step.process is not None and step.process.stopped:
                step.process.left.append(step)
                continue
            self.steps += 1
            step.run()
        raise SimulationLivelocked(f"{STEPS_PER_INSTANT_MAX} callbacks ran at {self._now:.6f} s")

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise SimulationStalled("nothing is scheduled: what is waited for will never happen")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[3])

    def run_out(self) -> None:
        """Runs what is left until nothing is, for a bounded time: tasks that were cancelled end."""
        _set_running_loop(self._loop)
        try:
            until = self._now + RUN_OUT_S
            while self._now < until and (self._ready or self._timers):
                try:
                    self._turn()
                except SimulationStalled:
                    return
        finally:
            _set_running_loop(None)

    def resume(self, process: Process) -> None:
        """Lets a stopped process run what it left lying, in order."""
        process.stopped = False
        self._ready.extend(process.left)
        process.left.clear()

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._now

    # --- scheduling -----------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Calls behind everything that is ready now."""
        step = _Step(callback, args, self._loop, context)
        step.process = PROCESS.get() if context is None else context.get(PROCESS)
        self._ready.append(step)
        return step

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Calls at a time of this loop."""
        timer = _Timer(when, callback, args, self._loop, context)
        timer.process = PROCESS.get() if context is None else context.get(PROCESS)
        self._count += 1
        heapq.heappush(self._timers, (when, self._chosen.random(), self._count, timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Calls after so many seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Timers call this when they are cancelled; they are dropped when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """Makes a future of this loop."""
        return asyncio.Future(loop=self._loop)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Starts a task; it belongs to the process in whose context it is started."""
        named = None if name is None else str(name)
        task = asyncio.Task(coro, loop=self._loop, name=named, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.note(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs the function after a moment, on the loop; jobs of one executor keep their order."""
        future: asyncio.Future[T] = self.create_future()
        due = self._now + self._chosen.uniform(JOB_S_MIN, JOB_S_MAX)
        if executor is not None:
            due = max(due, self._jobs_done_at.get(executor, 0.0) + JOB_S_MIN)
            self._jobs_done_at[executor] = due
        self.call_at(due, self._work, future, func, args)
        return future

    @staticmethod
    def _work(future: "asyncio.Future[T]", func: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - the future carries it
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    # --- connections ----------------------------------------------------------------------------

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connects through the simulated network."""
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        **_options: Any,
    ) -> Closable:
        """Listens in the simulated network."""
        return self.network.listen(protocol_factory, host, port)

    # --- the rest of what asyncio asks of a loop ------------------------------------------------

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Notes a failure that no caller received."""
        self.failures.append((PROCESS.get(), context))

    def get_debug(self) -> bool:
        """Never in debug mode, which would look at the real time."""
        return False

    def is_running(self) -> bool:
        """Whether callbacks run now."""
        return self._running

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Forgets everything that is scheduled."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()


async def elapse(seconds: float) -> None:
    """Lets simulated time pass.

    Raises:
        RuntimeError: the loop that runs is a real one, on which this would really take as long.
    """
    simulated = isinstance(asyncio.get_running_loop(), SimulatedLoop)
    if not simulated:
        raise RuntimeError("time elapses in a simulation only; run this with `Simulation.run`")
    await asyncio.sleep(seconds)
