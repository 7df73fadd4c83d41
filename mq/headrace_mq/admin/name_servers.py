"""
Asks name servers what they know, all at the same time: they do not know each other, and may differ.

    for name, known in (await ask_name_servers("ns1:9875,ns2:9875", "default")).items():
        print(name, known)      # a RoutesAnswer, or the error of one that does not answer

Used by the command line; uses a link to each name server.
"""

import asyncio

from headrace_mq._net.address import BrokerAddress, place_name
from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.names.routes import FindRoutes, RoutesAnswer

__all__ = ["ask_name_servers"]

# A name server that runs answers within milliseconds; so long a person waits for one that does not.
_TIMEOUT_MS = 3_000
_RECONNECT_MS = (100, 1_000)


async def ask_name_servers(
    servers: str, cluster: str = "", *, timeout_ms: int = _TIMEOUT_MS
) -> dict[str, RoutesAnswer | MessageQueueError]:
    """Returns what each name server knows, or why it does not answer, by its HOST:PORT.

    Args:
        servers: HOST:PORT,HOST:PORT, with TLS and a login as the address of a broker has them.
        cluster: brokers of this one; empty: of all.
        timeout_ms: the longest wait for each of them.

    Raises:
        ValueError: it is no address.
    """
    parsed = BrokerAddress.parse(servers)
    if parsed.cluster is not None:
        raise ValueError("name the name servers alone, HOST:PORT,HOST:PORT")
    answers = await asyncio.gather(
        *(
            _ask(str(parsed._replace(places=(place,))), FindRoutes(cluster), timeout_ms)
            for place in parsed.places
        )
    )
    return dict(zip(map(place_name, parsed.places), answers, strict=True))


async def _ask(
    address: str, asked: FindRoutes, timeout_ms: int
) -> RoutesAnswer | MessageQueueError:
    link = Link(address, client_id="look at routes", settings=LinkSettings(_RECONNECT_MS))
    try:
        await link.start(timeout_ms)
        return await link.ask(RoutesAnswer, RequestCode.ROUTES, asked, timeout_ms=timeout_ms)
    except MessageQueueError as error:
        return error
    finally:
        await link.aclose()
