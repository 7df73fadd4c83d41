"""
Following topics for ever, whatever becomes of a subscription.

    subscribe ─▶ the owner polls and acknowledges ─▶ it breaks ─▶ closed ─▶ a pause ─▶ subscribe …

Sits between: the loops of the event side, each of which does its own with what is polled, and the
transport's port. Must never know what is in a message.
"""

import asyncio
from collections.abc import Awaitable, Callable

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace.transports.base import Incoming, OffsetLoader, Subscription, Transport

__all__ = ["Following"]

log = get_logger(__name__)


class Following:
    """One group member that subscribes anew as often as it takes.

    Args:
        transport: brings the messages.
        group: whose member it is.
        topic: what it follows.
        backoff: the pauses between subscriptions; they grow until a poll succeeds.
        offsets: of a group that keeps its own; see `Transport.subscribe`.
        broken: hears of every subscription that broke, beside the log.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        group: str,
        topic: str,
        backoff: Backoff,
        offsets: OffsetLoader | None = None,
        broken: Callable[[Exception], None] | None = None,
    ) -> None:
        self._transport = transport
        self._group = group
        self._topic = topic
        self._backoff = backoff
        self._offsets = offsets
        self._broken = broken
        # Subscriptions that broke in a row.
        self._lapses = 0

    async def run(
        self,
        follow: Callable[[Subscription], Awaitable[None]],
        *,
        unless: tuple[type[Exception], ...] = (),
    ) -> None:
        """Subscribes and follows until cancelled.

        Args:
            follow: works with one subscription, through `poll`, until it breaks.
            unless: errors that another subscription cannot cure; raised at once.
        """
        while True:
            try:
                subscription = await self._transport.subscribe(
                    self._group, [self._topic], offsets=self._offsets
                )
                try:
                    await follow(subscription)
                finally:
                    await subscription.aclose()
            except unless:
                raise
            except Exception as error:  # noqa: BLE001 - adapters raise what they like; logged, repeated
                self._lapses += 1
                log.warning(
                    "will subscribe again",
                    group=self._group,
                    attempt=self._lapses,
                    error=repr(error),
                )
                if self._broken is not None:
                    self._broken(error)
            await self._backoff.pause(max(1, self._lapses))

    async def poll(
        self,
        subscription: Subscription,
        *,
        idle: Callable[[], Awaitable[bool]] | None = None,
        every_ms: int = 0,
    ) -> list[Incoming]:
        """Waits for messages; an empty list says that `idle` has ended the waiting.

        Args:
            subscription: what `run` handed over.
            idle: called whenever nothing has come for `every_ms`; True ends the waiting.
            every_ms: how often.
        """
        if idle is None:
            messages = await subscription.poll()
        else:
            messages = await _poll_beside(subscription, idle, every_ms / 1_000)
        self._lapses = 0
        return messages


async def _poll_beside(
    subscription: Subscription, idle: Callable[[], Awaitable[bool]], every_s: float
) -> list[Incoming]:
    poll = asyncio.ensure_future(subscription.poll())
    try:
        while not (await asyncio.wait({poll}, timeout=every_s))[0]:
            # What has come meanwhile must not be lost with the poll that brought it.
            if await idle() and not poll.done():
                return []
        return poll.result()
    finally:
        if not poll.done():
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
