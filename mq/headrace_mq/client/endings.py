"""
Gathers decisions on transactions that come at about the same time, and sends them together.

Sits between: `transactions` and `checking`, whose callers wait, and the link to the broker.
"""

import asyncio
from collections.abc import Callable

from headrace_mq._net.link import Link
from headrace_mq.errors import DecidedOtherwise, MessageQueueError, RequestTimeout
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.transactions import (
    BundleEnds,
    EndTransactions,
    Outcome,
    TransactionsEnded,
)

__all__ = ["ENDINGS_ON_WAY_MAX", "Endings"]

# Requests on their way at a time: one at the broker's disk, and one behind it.
ENDINGS_ON_WAY_MAX = 2

_WHAT = (
    "is undecided",
    "had been committed",
    "had been rolled back",
    "had been given up after its last check: its messages are kept in %DLQ%TRANSACTION",
    "was decided so long ago that the broker has forgotten how",
)


class _Request:
    """Decisions that are sent together, and who waits for them."""

    __slots__ = ("ends", "waiting")

    def __init__(self) -> None:
        self.ends: dict[int, BundleEnds] = {}
        self.waiting: list[tuple[int, int, bool, asyncio.Future[None]]] = []

    def settle(self, otherwise: dict[tuple[int, int], int]) -> None:
        """All are decided, some of them before and otherwise."""
        if not otherwise:
            for _, _, _, ended in self.waiting:
                if not ended.done():
                    ended.set_result(None)
            return
        for number, index, commit, ended in self.waiting:
            if ended.done():
                continue
            before = otherwise.get((number, index))
            if before is None or before == (Outcome.COMMITTED if commit else Outcome.ROLLED_BACK):
                ended.set_result(None)
            else:
                ended.set_exception(_decided(before))

    def fail(self, error: MessageQueueError) -> None:
        """Whether they are decided is not known, or they are not."""
        for *_, ended in self.waiting:
            if not ended.done():
                # One error object raised by every sender would collect all their tracebacks.
                ended.set_exception(type(error)(*error.args))


class Endings:
    """The decisions of one producer that are on their way.

    Args:
        link: to the broker.
        group: whose transactions these are.
        timeout_ms: how long a decision is repeated until the broker has confirmed it.
    """

    def __init__(self, link: Link, group: str, timeout_ms: int) -> None:
        self._link = link
        self._group = group
        self._timeout_ms = timeout_ms
        # Asking for the running loop is a system call, so it is done once.
        self._loop = asyncio.get_running_loop()
        self._new_future: Callable[[], asyncio.Future[None]] = self._loop.create_future
        self._gathered: _Request | None = None
        self._on_way: set[asyncio.Task[None]] = set()
        self._departing = False

    def end(self, number: int, index: int, *, commit: bool) -> asyncio.Future[None]:
        """Decides one transaction.

        The future ends when that is durable, and visible where it commits. It fails with

            DecidedOtherwise: it had been decided before, and not so.
            RequestTimeout, BrokerError: it may be decided or not; its checker will be asked.
        """
        request = self._gathered
        if request is None:
            request = self._gathered = _Request()
        ends = request.ends.get(number)
        if ends is None:
            ends = request.ends[number] = BundleEnds(number, [], [])
        (ends.commit if commit else ends.roll_back).append(index)
        ended = self._new_future()
        request.waiting.append((number, index, commit, ended))
        if not self._departing and len(self._on_way) < ENDINGS_ON_WAY_MAX:
            self._departing = True
            self._loop.call_soon(self._depart)
        return ended

    async def drained(self) -> None:
        """Waits until nothing is on its way any more."""
        while self._departing or self._on_way:
            if self._on_way:
                await asyncio.wait(self._on_way)
            await asyncio.sleep(0)

    def _depart(self) -> None:
        self._departing = False
        if self._gathered is not None and len(self._on_way) < ENDINGS_ON_WAY_MAX:
            request, self._gathered = self._gathered, None
            task = asyncio.create_task(self._send(request), name="end transactions")
            self._on_way.add(task)
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._on_way.discard(task)
        self._depart()

    async def _send(self, request: _Request) -> None:
        try:
            answer = await self._link.ask(
                TransactionsEnded,
                RequestCode.END_TRANSACTIONS,
                EndTransactions(self._group, list(request.ends.values())),
                timeout_ms=self._timeout_ms,
            )
        except MessageQueueError as error:
            request.fail(error)
        except BaseException:
            request.fail(RequestTimeout("the decision was not confirmed before the end"))
            raise
        else:
            request.settle({(one.number, one.index): one.outcome for one in answer.otherwise})


def _decided(outcome: int) -> DecidedOtherwise:
    what = _WHAT[outcome] if 0 <= outcome < len(_WHAT) else f"ended as {outcome}"
    return DecidedOtherwise(f"the transaction {what}; look at what it should have done")
