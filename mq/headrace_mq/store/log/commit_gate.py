"""
Holds written groups until their log is committed up to their end: the seam for replicas.

    written, synced ──▶ held ──(reached: every required replica has it)──▶ visible, acknowledged
                          └────(close: the store ends, or another broker leads)──▶ an error: outcome unknown

Used by `flusher`, which leaves groups here, and by the store's owner, who knows how far the replicas are. A store
without a gate commits a group as soon as it is synced. This module knows positions; it must not know replicas.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import BrokerStopping
from headrace_mq.store.log.write_group import Group

__all__ = ["CommitGate", "Durable"]

_log = get_logger(__name__)


class Durable(asyncio.Future[None]):
    """One future for all waiters of a cycle; a cancelled waiter does not cancel it for the others."""

    _first: tuple[Callable[[asyncio.Future[None]], None], ...] = ()

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - asyncio's signature
        """Returns False: the future cannot be cancelled."""
        return False

    def call_first(self, receive: Callable[[asyncio.Future[None]], None]) -> None:
        """Calls `receive` as soon as the future ends, before the loop wakes its waiters."""
        if self.done():
            receive(self)
        else:
            self._first += (receive,)

    def settle(self, failure: Exception | None) -> None:
        """Ends the future, with the failure if there is one."""
        if failure is None:
            self.set_result(None)
        else:
            self.set_exception(failure)
            # If no task waits for the future, the log line is the only report.
            self.exception()
        for receive in self._first:
            try:
                receive(self)
            except Exception:  # noqa: BLE001 - a defect in a receiver must not stop the store
                _log.exception("a callback after a flush failed")
        self._first = ()


def _call(owner: Callable[[], None]) -> None:
    try:
        owner()
    except Exception:  # noqa: BLE001 - a defect there must not stop the store
        _log.exception("what the owner of a store does after a write failed")


class _Cycle(NamedTuple):
    """The groups of one flush, and its waiters."""

    groups: list[Group]
    done: Durable | None


class CommitGate:
    """The groups that wait to be committed, in the order in which they were written; used on the event loop only.

    A flush is committed as a whole, and only after every earlier one: so a waiter of any log never hears of its
    batch before an earlier batch, and a repeated batch waits for the one that it repeats.

    Attributes:
        on_written: called when groups are in their files, before they are synced.
        on_held: called when groups were written and synced, before they wait.
        on_closed: called when nothing is committed any more.
    """

    def __init__(self) -> None:
        self._held: deque[_Cycle] = deque()
        self._reached: dict[str, int] = {}
        self._release: Callable[[list[Group], Durable | None], None] | None = None
        self._closed = False
        self.on_written: Callable[[], None] | None = None
        self.on_held: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None

    def __len__(self) -> int:
        return sum(len(cycle.groups) for cycle in self._held)

    def attach(self, release: Callable[[list[Group], Durable | None], None]) -> None:
        """Sets what commits groups and settles their waiters."""
        self._release = release

    def committed(self, log: str) -> int:
        """Returns the log position below which groups are committed, as far as `reached` said."""
        return self._reached.get(log, 0)

    def note_written(self) -> None:
        """Calls `on_written`; its failure must not stop the flush that is under way."""
        if self.on_written is not None:
            _call(self.on_written)

    def hold(self, groups: list[Group], done: Durable | None) -> None:
        """Holds the groups of one flush, or commits them if their positions were reached already."""
        if self._closed:
            self._fail(done)
            return
        for group in groups:
            if group.log.held_from is None:
                group.log.held_from = group.start
        self._held.append(_Cycle(groups, done))
        if self.on_held is not None:
            _call(self.on_held)
        self._step()

    def reached(self, log: str, position: int) -> None:
        """Commits what ends at or below a log position; a position that goes back changes nothing."""
        if position > self._reached.get(log, 0):
            self._reached[log] = position
            self._step()

    def last(self, loop: asyncio.AbstractEventLoop) -> Durable | None:
        """Returns the future of the latest flush that is held, or None if none is."""
        if not self._held:
            return None
        groups, done = self._held[-1]
        if done is None:
            done = Durable(loop=loop)
            self._held[-1] = _Cycle(groups, done)
        return done

    def close(self) -> None:
        """Commits nothing more: waiters get BrokerStopping, because replicas may have their batches or not."""
        self._closed = True
        while self._held:
            self._fail(self._held.popleft().done)
        if self.on_closed is not None:
            _call(self.on_closed)

    def _step(self) -> None:
        while self._held and not self._closed:
            groups, done = self._held[0]
            if any(group.end > self._reached.get(group.log.name, 0) for group in groups):
                return
            self._held.popleft()
            for group in groups:
                group.log.held_from = self._next_held(group)
            assert self._release is not None
            self._release(groups, done)

    def _next_held(self, released: Group) -> int | None:
        held = (group for cycle in self._held for group in cycle.groups)
        return next((group.start for group in held if group.log is released.log), None)

    @staticmethod
    def _fail(done: Durable | None) -> None:
        if done is not None:
            done.settle(
                BrokerStopping(
                    "the broker ended before the replicas confirmed the messages: they may be stored"
                    " or not; send them again"
                )
            )
