"""
A transport by its setting.

Used by the composition root, which has a setting; makes one of the adapters.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.transports.base import Transport

__all__ = ["open_transport"]


@asynccontextmanager
async def open_transport(
    broker: str | None, *, name: str = "", within_ms: int | None = None
) -> AsyncIterator[Transport]:
    """Opens the transport over a broker, or one within this process; closed with the block.

    Args:
        broker: its `host:port`; None: messages stay in this process.
        name: what this process is called there; empty: it has a random name.
        within_ms: how long to wait for the broker; None: as long as a message may wait for it.

    Raises:
        BrokerUnreachable: no broker answered in time.
        ValueError: the name has other characters than letters, digits, '.', '_' and '-', or more than 100.
    """
    if broker is None:
        from headrace.transports.local import LocalTransport

        transport: Transport = LocalTransport()
    else:
        from headrace.transports.queue import QueueTransport

        queue = QueueTransport(broker, name=name)
        await queue.start(within_ms=within_ms)
        transport = queue
    try:
        yield transport
    finally:
        await transport.aclose()
