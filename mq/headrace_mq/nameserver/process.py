"""
The process of a name server: its event loop, its signals and its metrics.

Used by the command line and by tests, which give it settings; runs a `NameServer`.
"""

import asyncio
import signal
from collections.abc import Callable
from functools import partial

from headrace_mq._runtime import event_loop
from headrace_mq.metrics.listener import MetricsListener
from headrace_mq.name_settings import NameServerSettings
from headrace_mq.nameserver.metrics import text
from headrace_mq.nameserver.name_server import NameServer

__all__ = ["run", "serve"]


async def serve(settings: NameServerSettings, *, ready: Callable[[str], None]) -> None:
    """Runs a name server until the process gets SIGTERM or SIGINT.

    With TLS or a login, SIGHUP has it read its certificates and users again.

    Args:
        settings: of the name server.
        ready: called with the bound address once clients can connect.

    Raises:
        MessageQueueError: it cannot start, or its metrics cannot be served; the sentence says how to go on.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    server = NameServer(settings)
    metrics = None
    if settings.metrics is not None:
        metrics = MetricsListener(settings.metrics, partial(text, server))
    handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: stop.set, signal.SIGINT: stop.set}
    if settings.tls_certificate is not None or settings.login:
        handlers[signal.SIGHUP] = server.renew
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        await server.start()
        if metrics is not None:
            await metrics.start()
        ready(server.address)
        await stop.wait()
    finally:
        if metrics is not None:
            await metrics.aclose()
        await server.aclose()
        for number in handlers:
            loop.remove_signal_handler(number)


def run(settings: NameServerSettings, *, ready: Callable[[str], None]) -> None:
    """Gives this process to a name server, on uvloop where it is installed; returns when it stopped.

    Raises:
        MessageQueueError: it cannot start; the sentence says how to go on.
    """
    event_loop.run(serve(settings, ready=ready))
