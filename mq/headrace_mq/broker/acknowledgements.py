"""
PRODUCE answers that wait for the flush of what they acknowledge.

One callback per flush group releases all its answers the moment it is durable, and each connection
gets its share in one write. A flush that fails turns every success that waited for it into that failure.

Used by `handlers.produce`, which leaves answers here; uses the store's flush groups.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import NamedTuple

import msgspec

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import BrokerError, ResponseCode
from headrace_mq.metrics.histogram import Histogram
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, encode
from headrace_mq.store.log.commit_gate import Durable

__all__ = ["Acknowledgements"]

_log = get_logger(__name__)
_new = tuple.__new__


class _Waiting(NamedTuple):
    connection: Connection
    correlation: int
    results: list[Produced]
    request_bytes: int


class Acknowledgements:
    """The answers that wait.

    Args:
        durable: returns the future of the flush group that what was just appended belongs to.

    Attributes:
        times: how long requests waited until they were answered; each counts as the first one of its flush group.
    """

    def __init__(self, durable: Callable[[], Durable]) -> None:
        self._durable = durable
        self._group: asyncio.Future[None] | None = None
        self._waiting: list[_Waiting] = []
        self._pending: set[asyncio.Future[None]] = set()
        self.times = Histogram()

    def hold(
        self, connection: Connection, correlation: int, results: list[Produced], request_bytes: int
    ) -> None:
        """Answers when everything appended so far is durable.

        `request_bytes` count against the connection's limit until then.
        """
        group = self._durable()
        if group.done():
            self._flushed([_Waiting(connection, correlation, results, 0)], group, perf_counter())
            return
        if group is not self._group:
            self._group = group
            self._waiting = []
            self._pending.add(group)
            # One look at the clock for all requests of a group.
            group.call_first(partial(self._flushed, self._waiting, since_s=perf_counter()))
        connection.charge(request_bytes)
        # A named tuple built as a tuple: half the time of calling it, for every request.
        self._waiting.append(_new(_Waiting, (connection, correlation, results, request_bytes)))

    async def drain(self) -> None:
        """Returns when nothing waits any more."""
        while self._pending:
            await asyncio.wait(self._pending)

    def _flushed(
        self, waiting: list[_Waiting], group: asyncio.Future[None], since_s: float
    ) -> None:
        self._pending.discard(group)
        if group is self._group:
            self._group = None
        failure = group.exception()
        if failure is not None:
            _log.error("a flush failed; none of its messages is acknowledged", error=repr(failure))
        answered: dict[Connection, None] = {}
        try:
            for connection, correlation, results, request_bytes in waiting:
                answer = results if failure is None else [_failed(one, failure) for one in results]
                if connection not in answered:
                    answered[connection] = None
                    connection.gather()
                connection.answer(ResponseCode.OK, correlation, encode(ProduceAnswer(answer)))
                connection.discharge(request_bytes)
        finally:
            # At once: the producers wait for it, and what they sent meanwhile may take a while.
            for connection in answered:
                connection.flush()
            self.times.add(perf_counter() - since_s, len(waiting))


def _failed(result: Produced, failure: BaseException) -> Produced:
    if result.code != ResponseCode.OK:
        return result
    if isinstance(failure, BrokerError):
        code, sentence = failure.code, str(failure)
    else:
        code = ResponseCode.INTERNAL_ERROR
        sentence = "the broker could not make the batch durable; see its log, then restart it"
    return msgspec.structs.replace(result, base_offset=-1, code=code, sentence=sentence)
