"""
Messages that expire: a sender sets a time to live, and expired messages do not reach a handler.

Used by applications: `expiring` wraps a handler.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq.client.handlers.execution import check_async
from headrace_mq.client.retries.retries import GiveUp
from headrace_mq.message import Message, Record

__all__ = ["TTL_HEADER", "Expiry", "expiring", "is_expired"]

# How long after its birth a message is of use, in ms, as decimal text. Not after it was stored: a copy
# that is retried is stored again, and keeps its time of birth.
TTL_HEADER = "%ttl"

# A consumer's clock that was set forth counts once it has stood so for this long: one that is wrong for a
# moment gives up no message.
SETTLED_MS = 60_000
# Less than this is slewing.
_STEP_MS = 1_000

Handler = Callable[[Record], Awaitable[None]]
BatchHandler = Callable[[Sequence[Record]], Awaitable[None]]


def expiring(message: Message, ttl_ms: int) -> Message:
    """Returns the message with a time to live, which begins when a producer takes it.

    Raises:
        ValueError: the time is not positive.
    """
    if ttl_ms < 1:
        raise ValueError(f"a time to live is 1 ms or more, not {ttl_ms}")
    return replace(message, headers={**message.headers, TTL_HEADER: str(ttl_ms)})


def is_expired(record: Record, now_ms: int) -> bool:
    """Whether a record has expired; a record without a readable time to live never does."""
    ttl = record.headers.get(TTL_HEADER, "") if record.headers else ""
    return ttl.isascii() and ttl.isdigit() and now_ms >= record.born_at_ms + int(ttl)


class _Settled:
    """A clock whose jumps forth count when they have stood for a time; others count at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()
        # The jump that does not count yet: when it was, and how far it went.
        self._set_at_ms: int | None = None
        self._ahead_ms = 0

    def now_ms(self) -> int:
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        ahead_ms = now_ms - monotonic_ms - self._offset_ms
        if ahead_ms >= _STEP_MS:
            if self._set_at_ms is None or ahead_ms - self._ahead_ms >= _STEP_MS:
                self._set_at_ms, self._ahead_ms = monotonic_ms, ahead_ms
            if monotonic_ms - self._set_at_ms < SETTLED_MS:
                return monotonic_ms + self._offset_ms
        self._set_at_ms, self._offset_ms = None, now_ms - monotonic_ms
        return now_ms


class Expiry:
    """Keeps expired records from handlers.

    Args:
        expired: "drop" acknowledges them; "dead_letter" gives them up, so that a `RetryingConsumer`
            puts them among its dead letters.
        clock: the time; it must agree with the producers' clocks. If it jumps forward, the new time
            counts after SETTLED_MS.

    Attributes:
        expired: how many records were kept from handlers.
    """

    def __init__(
        self, expired: Literal["drop", "dead_letter"] = "drop", *, clock: Clock | None = None
    ) -> None:
        self._gives_up = expired == "dead_letter"
        self._clock = _Settled(clock or SystemClock())
        self.expired = 0

    def spare(self, handler: Handler) -> Handler:
        """Wraps a handler for `run`, so that it never gets an expired record."""
        check_async(handler)

        async def handle(record: Record) -> None:
            if not is_expired(record, self._clock.now_ms()):
                await handler(record)
                return
            self.expired += 1
            if self._gives_up:
                raise GiveUp(f"expired {record.headers[TTL_HEADER]} ms after its birth")

        return handle

    def spare_batches(self, handler: BatchHandler) -> BatchHandler:
        """The same for `run_batches`; expired records are always dropped there.

        The handler does not get an empty batch.
        """
        check_async(handler)

        async def handle(records: Sequence[Record]) -> None:
            now_ms = self._clock.now_ms()
            left = [record for record in records if not is_expired(record, now_ms)]
            if left:
                await handler(left)
            self.expired += len(records) - len(left)

        return handle
