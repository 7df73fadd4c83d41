"""
Whether a broker's event loop still turns: one connection, one HELLO, any answer.

A refusal is an answer too: a broker that has no place for one more connection works, and to end it
would take from those who have one what they have.

Sits between: the `supervisor`, and the broker's port.
"""

import asyncio

from headrace_mq._net.link import hello_for, parse_address
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import encode_frame

__all__ = ["is_answered"]


async def is_answered(address: str, *, timeout_ms: int) -> bool:
    """Asks a broker; False: nothing came in time, or nobody listens.

    Args:
        address: its `host:port`.
        timeout_ms: how long to wait for an answer, in milliseconds.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            reader, writer = await asyncio.open_connection(*parse_address(address))
            try:
                writer.write(encode_frame(RequestCode.HELLO, 1, encode(hello_for("supervisor"))))
                await reader.read(1)
            except ConnectionError:
                # The kernel alone accepts; only the process ends a connection.
                return True
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
    return True
