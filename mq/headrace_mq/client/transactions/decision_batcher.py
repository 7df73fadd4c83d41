"""
Gathers decisions on transactions that come at about the same time, and sends them together.

Used by `TransactionalProducer` and `checks`, whose callers wait for the answer.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from headrace_mq._net.link import Link
from headrace_mq.errors import DecidedOtherwise, MessageQueueError, RequestTimeout
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.transactions import (
    BundleEnds,
    EndTransactions,
    Outcome,
    TransactionsEnded,
)

__all__ = ["ENDINGS_ON_WAY_MAX", "DecisionBatcher"]

# Requests on their way at a time: one at the broker's disk, and one behind it.
ENDINGS_ON_WAY_MAX = 2
# What goes in one request: a broker works on it for some milliseconds, and on nothing else meanwhile.
BUNDLES_PER_REQUEST, PLACES_PER_REQUEST = 1_024, 32_768

_WHAT = (
    "is undecided",
    "had been committed",
    "had been rolled back",
    "had been given up after its last check: its messages are kept in %DLQ%TRANSACTION",
    "was decided so long ago that the broker has forgotten how",
)


class _Waiting:
    """The decisions on one bundle, and a future for each, in their order."""

    __slots__ = ("commit", "committed", "roll_back", "rolled_back")

    def __init__(self) -> None:
        self.commit: list[int] = []
        self.committed: list[asyncio.Future[None]] = []
        self.roll_back: list[int] = []
        self.rolled_back: list[asyncio.Future[None]] = []


class _Request:
    """Decisions that are sent together, by bundle, and the callers that wait for them."""

    __slots__ = ("bundles",)

    def __init__(self) -> None:
        self.bundles: dict[int, _Waiting] = {}

    def ends(self) -> list[BundleEnds]:
        """What was decided, for the broker."""
        return [
            BundleEnds(number, one.commit, one.roll_back) for number, one in self.bundles.items()
        ]

    def settle(self, otherwise: dict[tuple[int, int], int]) -> None:
        """All are decided, some of them before and otherwise."""
        for number, one in self.bundles.items():
            if otherwise:
                _refuse(number, one.commit, one.committed, Outcome.COMMITTED, otherwise)
                _refuse(number, one.roll_back, one.rolled_back, Outcome.ROLLED_BACK, otherwise)
            for ended in chain(one.committed, one.rolled_back):
                try:
                    ended.set_result(None)
                except asyncio.InvalidStateError:
                    # It was refused, or the caller was cancelled.
                    continue

    def fail(self, error: MessageQueueError) -> None:
        """Whether they are decided is not known, or they are not."""
        for one in self.bundles.values():
            for ended in chain(one.committed, one.rolled_back):
                if not ended.done():
                    # One error object raised by every sender would collect all their tracebacks.
                    ended.set_exception(type(error)(*error.args))


def _refuse(
    number: int,
    places: Sequence[int],
    waiting: Sequence[asyncio.Future[None]],
    wanted: Outcome,
    otherwise: Mapping[tuple[int, int], int],
) -> None:
    """Fails the calls whose transaction had been decided before, in another way."""
    for place, ended in zip(places, waiting, strict=True):
        before = otherwise.get((number, place), wanted)
        if before != wanted and not ended.done():
            ended.set_exception(_decided(before))


class DecisionBatcher:
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
        bundle = request.bundles.get(number)
        if bundle is None:
            bundle = request.bundles[number] = _Waiting()
        ended = self._new_future()
        if commit:
            bundle.commit.append(index)
            bundle.committed.append(ended)
        else:
            bundle.roll_back.append(index)
            bundle.rolled_back.append(ended)
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
        otherwise: dict[tuple[int, int], int] = {}
        try:
            for part in _parts(request.ends()):
                answer = await self._link.ask(
                    TransactionsEnded,
                    RequestCode.END_TRANSACTIONS,
                    EndTransactions(self._group, part),
                    timeout_ms=self._timeout_ms,
                )
                otherwise |= {(one.number, one.index): one.outcome for one in answer.otherwise}
        except MessageQueueError as error:
            request.fail(error)
        except BaseException:
            request.fail(RequestTimeout("the decision was not confirmed before the end"))
            raise
        else:
            request.settle(otherwise)


def _parts(ends: Sequence[BundleEnds]) -> Iterator[list[BundleEnds]]:
    """Divides decisions, so that a broker does not refuse them as too many at a time."""
    part: list[BundleEnds] = []
    places = 0
    for end in ends:
        more = len(end.commit) + len(end.roll_back)
        if part and (len(part) >= BUNDLES_PER_REQUEST or places + more > PLACES_PER_REQUEST):
            yield part
            part, places = [], 0
        part.append(end)
        places += more
    yield part


def _decided(outcome: int) -> DecidedOtherwise:
    what = _WHAT[outcome] if 0 <= outcome < len(_WHAT) else f"ended as {outcome}"
    return DecidedOtherwise(f"the transaction {what}; look at what it should have done")
