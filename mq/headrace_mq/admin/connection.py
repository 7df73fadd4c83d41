"""
The connection that administrative requests are sent through.

Used by every part of `AdminClient`.
"""

import uuid
from typing import TypeVar

from headrace_mq._net.link import LinkSettings
from headrace_mq._runtime.async_block import AsyncBlock
from headrace_mq.client.spread.spread_link import link_to
from headrace_mq.protocol.bodies import Body
from headrace_mq.protocol.codes import RequestCode

__all__ = ["AdminConnection"]

# First and longest pause between two connection attempts.
RECONNECT_MS = (50, 1_000)

B = TypeVar("B", bound=Body)


class AdminConnection(AsyncBlock):
    """A connection for administration; use it in an `async with` block.

    Every call raises `ConnectionLost` or `RequestTimeout` when the broker does not answer, and the
    `BrokerError` it answered with.

    Args:
        address: the broker's `host:port`.
        timeout_ms: bound of connecting and of each call.
        connect_ms: bound of connecting, where it is another one.
        reads: whether a replica of a group may answer, too; it answers `settings` alone.
        patient: whether questions about topics are answered without the broker groups of the address that are away.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_ms: int = 10_000,
        connect_ms: int | None = None,
        reads: bool = False,
        patient: bool = False,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._connect_ms = timeout_ms if connect_ms is None else connect_ms
        self._link = link_to(
            address,
            client_id=str(uuid.uuid4()),
            settings=LinkSettings(RECONNECT_MS, reads=reads),
            patient=patient,
        )

    @property
    def address(self) -> str:
        """The broker's address, as it was given."""
        return self._link.address

    @property
    def trouble(self) -> Exception | None:
        """Why the last attempt to connect failed, as the broker or the system said it; None: none has."""
        return self._link.last_error

    async def start(self) -> None:
        """Connects; raises ConnectionLost, saying what to check, when no broker answers."""
        await self._link.start(self._connect_ms)

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._link.aclose()

    async def _ask(self, kind: type[B], code: RequestCode, body: Body | None = None) -> B:
        return await self._link.ask(kind, code, body, timeout_ms=self._timeout_ms)
