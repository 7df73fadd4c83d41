"""
Notices that another broker of a group leads, while a connection stands and says nothing.

    silent ─▶ heartbeat on the connection ─▶ still silent ─▶ HELLO to the other addresses ─▶ one serves, in a later epoch

A broker that was paused, or cut off, keeps its connections open; the system needs a minute to notice that, or never does.
Only addresses with several places are watched. Used by `link`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from headrace_mq._net.client_connection import ClientConnection
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.bodies import Heartbeat, encode
from headrace_mq.protocol.codes import RequestCode

__all__ = ["LOOK_MS", "until_superseded"]

# A connection that is silent for this long is asked, and after as long again the others are: a leader that is lost is
# replaced within some three seconds, so clients find the new one within five.
LOOK_MS = 1_500
# A broker that serves answers HELLO within milliseconds.
_HELLO_MS_MAX = 500

Place = tuple[str, int]


async def until_superseded(
    connection: ClientConnection,
    places: Iterable[Place],
    connect: Callable[[Place], Awaitable[ClientConnection]],
) -> None:
    """Returns when a broker at another place serves in a later epoch; cancel it with the connection.

    Args:
        connection: whose handshake is done.
        places: the others.
        connect: makes a connection, with its handshake; raises OSError, ValueError or MessageQueueError.
    """
    assert connection.hello is not None
    others, seen, is_asked = list(places), connection.progress, False
    while True:
        await asyncio.sleep(LOOK_MS / 1_000)
        if connection.progress != seen:
            seen, is_asked = connection.progress, False
        elif not is_asked:
            is_asked = True
            connection.submit(RequestCode.HEARTBEAT, encode(Heartbeat()), receive=_nothing)
        elif await _serves_later(others, connection.hello.epoch, connect):
            return


async def _serves_later(
    others: list[Place], epoch: int, connect: Callable[[Place], Awaitable[ClientConnection]]
) -> bool:
    for place in others:
        try:
            async with asyncio.timeout(_HELLO_MS_MAX / 1_000):
                found = await connect(place)
        except (OSError, TimeoutError, ValueError, MessageQueueError):
            continue
        is_later = found.hello is not None and found.hello.epoch > epoch
        found.end("it was only asked")
        if is_later:
            return True
    return False


def _nothing(_answer: object) -> None:
    return None
