"""
Simulated processes: what belongs to one, so that it can be stopped, killed, or lose its machine.

A killed process cannot be removed from the interpreter, so it becomes a ghost: its tasks are cancelled,
and what they still do does not reach the network, the disk or the history any more.

Used by all parts of the simulation.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

__all__ = ["PROCESS", "Process"]

# A process's list of tasks is tidied when it has grown by this many.
TIDY_EVERY = 64


class Process:
    """One process on one host.

    Args:
        name: what traces call it.
        host: the machine's address in the simulated network.

    Attributes:
        alive: False once it was killed; then it is a ghost.
        stopped: whether it stands still, as after SIGSTOP.
        left: callbacks that became due while it stood still.
    """

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.stopped = False
        self.left: deque[Any] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._tidy_at = TIDY_EVERY
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name

    def context(self) -> Context:
        """A context whose callbacks and tasks belong to this process."""
        return self._context.copy()

    def spawn(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> "asyncio.Task[Any]":
        """Starts a task of this process."""
        loop = asyncio.get_running_loop()
        return loop.create_task(work, name=name or self.name, context=self.context())

    def note(self, task: "asyncio.Task[Any]") -> None:
        """Counts a task in; called by the loop."""
        self._tasks.append(task)
        if len(self._tasks) >= self._tidy_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tidy_at = len(self._tasks) + TIDY_EVERY

    def end(self) -> None:
        """Makes it a ghost: its tasks are cancelled, and what they still raise is dropped."""
        self.alive = False
        for task in self._tasks:
            task.add_done_callback(_hear)
            task.cancel()


def _hear(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()


PROCESS: ContextVar[Process | None] = ContextVar("headrace_simulated_process", default=None)
