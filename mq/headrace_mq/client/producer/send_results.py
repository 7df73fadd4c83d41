"""
Results of sent batches: waiting for them, the broker's answers, and the offsets of messages.

Most callers only wait for the acknowledgement, so no object is made for each message.

Used by `Producer`, whose callers wait, and by `send_buffer`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload

from headrace_mq._net.client_connection import Answer
from headrace_mq.client.batch.batch import Batch, Place
from headrace_mq.errors import (
    MalformedRequest,
    MessageQueueError,
    ResponseCode,
    SendTimeout,
    error_for,
)
from headrace_mq.message import SendResult
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, decode

__all__ = ["BatchRun", "SendResults", "all_placed", "outcomes", "report", "settled", "too_late"]


class BatchRun(NamedTuple):
    """Messages of one call that stand side by side in a batch.

    `places` are theirs in the call; the first of them has number `first` in the batch.
    """

    batch: Batch
    first: int
    places: Sequence[int]


class SendResults(Sequence[SendResult]):
    """The results of one call, in the order of its messages; compares like a list.

    Args:
        runs: acknowledged, and together all messages of the call.
    """

    __slots__ = ("_count", "_found", "_runs")

    def __init__(self, runs: Iterable[BatchRun]) -> None:
        self._runs = tuple(runs)
        self._count = sum(len(run.places) for run in self._runs)
        self._found: list[SendResult] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> SendResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...
    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SendResults):
            return self._all() == other._all()
        return self._all() == other if isinstance(other, list) else NotImplemented

    # Like a list: a sequence that compares by its content has none.
    __hash__ = None  # type: ignore[assignment]  # the way Python spells "not hashable"

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[SendResult]:
        if self._found is None:
            results = [(place, run.batch.result(run.first + number))
                       for run in self._runs for number, place in enumerate(run.places)]  # fmt: skip
            results.sort(key=lambda found: found[0])
            self._found = [result for _, result in results]
        return self._found


def outcomes(answer: Answer, count: int) -> Sequence[Produced | MessageQueueError]:
    """What became of each batch of a request."""
    if isinstance(answer, MessageQueueError):
        return [answer] * count
    try:
        results = decode(ProduceAnswer, answer).results
    except MalformedRequest as error:
        return [error] * count
    if len(results) != count:
        return [MalformedRequest(f"{len(results)} answers came for {count} batches")] * count
    return [
        result if result.code == ResponseCode.OK else error_for(result.code, result.sentence)
        for result in results
    ]


def too_late(address: str, timeout_ms: int, batch: Batch | None) -> SendTimeout:
    """What a message ends with whose time was up, in a batch or before it had one."""
    if batch is None or not batch.attempts:
        return SendTimeout(f"not sent within {timeout_ms} ms to {address}")
    if len(batch.refusals) == batch.attempts:
        return SendTimeout(
            f"not stored: {address} refused the message for {timeout_ms} ms, last because"
            f" {batch.refusals[-1]}"
        )
    return SendTimeout(
        f"unknown outcome: no acknowledgement from {address} within {timeout_ms} ms;"
        " the message may be stored, and sending it again may store it twice"
    )


def report(result: asyncio.Future[SendResult], place: asyncio.Future[Place]) -> None:
    """Passes on what became of a message that waited for its place."""
    if place.cancelled():
        result.cancel()
        return
    error = place.exception()
    if error is None:
        batch, number = place.result()
        batch.report(number, result)
    elif not result.done():
        result.set_exception(error)


async def all_placed(placed: Sequence[Place | asyncio.Future[Place]]) -> list[Place]:
    """Waits until every message has left the line; raises the first failure."""
    line = [place for place in placed if not isinstance(place, tuple)]
    try:
        if line:
            await asyncio.wait(line)
    except asyncio.CancelledError:
        for place in line:
            place.cancel()
        raise
    failures = [place.exception() for place in line]
    for failure in failures:
        if failure is not None:
            raise failure
    return [place if isinstance(place, tuple) else place.result() for place in placed]


async def settled(batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
    """Waits until the batch is stored or given up.

    All callers that wait for a batch share one future, which saves a tenth of the time of a send. Cancelling
    one of them cancels that future, so the others look whether they were meant and go on waiting.
    """
    # Asking for the running loop is a system call (of `getpid`), so it is handed down.
    task = asyncio.current_task(loop)
    cancellations = task.cancelling() if task is not None else 0
    while not batch.settled:
        if batch.waiter is None or batch.waiter.cancelled():
            batch.waiter = loop.create_future()
        try:
            await batch.waiter
        except asyncio.CancelledError:
            if task is None or task.cancelling() > cancellations:
                raise
